// Small helpers for elements. Text is always set as text, never as HTML.

// Characters that command what shows them, or turn the direction of what follows, become signs; offsets stay.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const SHOWN = 300; // characters of a text beside its prediction
export const visible = (text) => text.replace(HIDDEN, "\ufffd");

export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = key === "textContent" && typeof value === "string" ? visible(value) : value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// The same for a part of a drawing.
export function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function bar(share) {
  const element = make("div", { className: "bar" });
  element.style.width = `${(100 * share).toFixed(1)}%`;
  element.setAttribute("aria-hidden", "true");
  return element;
}

// The first characters of a text: the layout of very long words takes seconds.
export const beginning = (text) => (text.length > SHOWN ? `${text.slice(0, SHOWN)} … (${(text.length - SHOWN).toLocaleString("en")} more characters)` : text);

export const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

export function percent(share, digits = 1) {
  return `${(100 * share).toFixed(digits)}%`;
}

// The lines of an area that hold more than space.
export function linesOf(area) {
  const lines = area.value.split("\n").filter((line) => line.trim());
  if (!lines.length) throw new Error("there is no text; write one, or paste several, one per line");
  return lines;
}

// What a model reads: of tasks about several texts those that tabs part, of tagging the words; else the text with its tabs.
export function inputOf(text, option, parted = option.dataset.parted === "yes") {
  if (option.dataset.task === "tagging") return text.trim().split(/\s+/);
  return parted ? text.split("\t") : text;
}

// Runs a task for a panel: shows that it runs, lets it be stopped, and shows its error.
export async function run(panel, task) {
  const form = panel.querySelector("form");
  const [start, stop, status, error] = ["[type=submit]", ".stop", ".status", ".error"].map((one) => panel.querySelector(one));
  const aborting = new AbortController();
  const abort = () => aborting.abort();
  error.hidden = true;
  start.disabled = true;
  if (stop) {
    stop.hidden = false;
    stop.addEventListener("click", abort);
  }
  try {
    await task(aborting.signal, (words) => (status.textContent = words));
  } catch (problem) {
    if (problem.name === "AbortError") {
      status.textContent = "stopped";
    } else {
      status.textContent = "";
      error.textContent = problem.message === "Failed to fetch" ? "the server does not answer" : problem.message;
      error.hidden = false;
    }
  } finally {
    start.disabled = false;
    if (stop) {
      stop.hidden = true;
      stop.removeEventListener("click", abort);
    }
    form.setAttribute("aria-busy", "false");
  }
}
