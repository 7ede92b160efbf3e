// A model from the labels so far: trained beside the server, or a task for the commands.

import { post } from "./api.js";

const part = (id) => document.getElementById(id);
const [train, write, problem] = ["train", "write-task", "training-problem"].map(part);

function show(id, sentence, next) {
  const command = part(`${id}-command`);
  part(id).textContent = sentence;
  command.hidden = !next;
  command.querySelector("code").textContent = next;
}

// changed() is called once a training has begun.
export function setUpTraining(changed) {
  const ask = async (path, told) => {
    problem.hidden = true;
    try {
      told(await (await post(path, {})).json());
    } catch (error) {
      problem.textContent = error.status === undefined ? "the server does not answer" : error.message;
      problem.hidden = false;
    }
  };
  train?.addEventListener("click", () => ask("/api/train", ({ training }) => {
    showTraining(training);
    changed();
  }));
  write.addEventListener("click", () => ask("/api/task", (found) => show("written", `The task is written: ${found.task}`, found.command)));
}

// What the status says of it; nothing if no training was asked for.
export function showTraining(training) {
  if (!training) return;
  if (train) train.disabled = training.state === "running";
  show("training", training.sentence, training.command);
}
