// A model from the labels so far: trained and served beside this page; or a task for the commands.

import { post } from "./api.js";
import { make } from "./elements.js";

const part = (id) => document.getElementById(id);
const [train, more, write, problem] = ["train", "train-more", "write-task", "training-problem"].map(part);

function show(id, sentence, next) {
  const command = part(`${id}-command`);
  part(id).textContent = sentence;
  command.hidden = !next;
  command.querySelector("code").textContent = next;
}

// changed() is called once a training has begun.
export function setUpTraining(changed) {
  const ask = async (path, told, body = {}) => {
    problem.hidden = true;
    try {
      told(await (await post(path, body)).json());
    } catch (error) {
      problem.textContent = error.status === undefined ? "the server does not answer" : error.message;
      problem.hidden = false;
    }
  };
  for (const [button, thorough] of [[train, false], [more, true]]) {
    button?.addEventListener("click", () => ask("/api/train", ({ training }) => {
      showTraining(training);
      changed();
    }, { thorough }));
  }
  write.addEventListener("click", () => ask("/api/task", (found) => show("written", `The task is written: ${found.task}`, found.command)));
}

// What the status says of it, the verdict first; nothing if no training was asked for.
export function showTraining(training) {
  if (!training || !train) return;
  const [verdict, ...others] = training.findings;
  train.disabled = more.disabled = training.state === "running";
  train.textContent = verdict ? "Train again" : "Train now";
  more.hidden = part("report").hidden = !verdict;
  part("try").hidden = !training.command;
  part("verdict").textContent = verdict ?? "";
  part("findings").replaceChildren(...others.map((sentence) => make("li", { dir: "auto", textContent: sentence })));
  show("training", training.sentence, training.command);
}
