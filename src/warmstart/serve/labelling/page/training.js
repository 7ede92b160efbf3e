// A model from the labels so far: trained beside the server, or a task for the commands.

import { post } from "./api.js";

const [train, write, words, command, problem] = ["train", "write-task", "training", "training-command", "training-problem"]
  .map((id) => document.getElementById(id));

function show(sentence, next) {
  words.textContent = sentence;
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
  write.addEventListener("click", () => ask("/api/task", (found) => show(`The task is written: ${found.task}`, found.command)));
}

// What the status says of it; nothing if no training was asked for.
export function showTraining(training) {
  if (!training) return;
  if (train) train.disabled = training.state === "running";
  show(training.sentence, training.command);
}
