// A model from the labels so far: trained and served beside this page; or a task for the commands.

import { get, post } from "./api.js";

const part = (id) => document.getElementById(id);
const [train, more, write, problem] = ["train", "train-more", "write-task", "training-problem"].map(part);

let shown = "";

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
  write.addEventListener("click", () => ask("/api/task", (found) => {
    part("written").textContent = `The task is written: ${found.task}`;
    part("written-command").hidden = false;
    part("written-command").querySelector("code").textContent = found.command;
  }));
}

// What the status says of it, below the first screen of its report; nothing if no training was asked for.
export async function showTraining(training) {
  if (!training || !train) return;
  train.disabled = more.disabled = training.state === "running";
  train.textContent = training.findings.length ? "Train again" : "Train now";
  more.hidden = part("report").hidden = !training.findings.length;
  if (training.served) part("pages").hidden = false;
  part("training").textContent = training.sentence;
  const found = training.findings.join(" ");
  if (found === shown) return;
  shown = found;
  try {
    part("verdict").innerHTML = await (await get("/verdict")).text(); // made by the server, which escapes what is in it
  } catch {
    shown = ""; // the server is gone for now
  }
}
