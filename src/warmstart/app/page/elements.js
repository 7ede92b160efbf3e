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

export function bar(share) {
  const element = make("div", { className: "bar" });
  element.style.width = `${(100 * share).toFixed(1)}%`;
  element.setAttribute("aria-hidden", "true");
  return element;
}

// The first characters of a text: the layout of very long words takes seconds.
export const beginning = (text) => (text.length > SHOWN ? `${text.slice(0, SHOWN)} … (${(text.length - SHOWN).toLocaleString("en")} more characters)` : text);

export const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}%`;

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

// Whether a task succeeds; if not, an element says why, which is hidden else.
export async function succeeds(error, task) {
  error.hidden = true;
  try {
    await task();
  } catch (problem) {
    error.textContent = problem.message;
    error.hidden = false;
  }
  return error.hidden;
}

// Runs a task for a panel: shows that it runs, lets it be stopped, and shows its error.
export async function run(panel, task) {
  const [form, start, stop, status, error] = ["form", "[type=submit]", ".stop", ".status", ".error"].map((one) => panel.querySelector(one));
  const aborting = new AbortController();
  const abort = () => aborting.abort();
  const say = (words) => (status.textContent = words);
  const busy = (is) => {
    start.disabled = is;
    if (stop) stop.hidden = !is;
  };
  busy(true);
  stop?.addEventListener("click", abort);
  await succeeds(error, () => task(aborting.signal, say).catch((problem) => {
    say(problem.name === "AbortError" ? "stopped" : "");
    if (problem.name !== "AbortError") throw problem;
  }));
  stop?.removeEventListener("click", abort);
  busy(false);
  form.setAttribute("aria-busy", "false");
}
