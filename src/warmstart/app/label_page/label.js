// One text at a time: shows it, takes the answer, and shows the next once the answer is on disk.

import { Answered } from "./answered.js";
import { get, post } from "./api.js";
import { count, make, run, visible } from "./elements.js";
import { Figures } from "./figures.js";
import { setUpNames } from "./names.js";
import { keepName, keepSame, nameKept, personFields } from "./person.js";
import { spansOf, Tags } from "./tags.js";
import { setUpTraining } from "./training.js";

const ALOUD = 1000; // characters of a text that are read aloud
const FEW = 9; // labels that need no search
const SINGLE_KEYS = "warmstart-single-keys";
const FIELDS = "input, textarea, select"; // in which keys write
const PAUSE = 1000; // milliseconds between two tries
const GONE = new Set([502, 503, 504]);
const tagging = document.body.dataset.type === "tagging";
const part = Object.fromEntries(
  ["join", "taken", "work", "me", "me-name", "away", "problem", "notice", "text", "nothing", "answering", "find", "find-label", "choices", "comment", "said", "read-aloud", "submit"]
    .map((id) => [id, document.getElementById(id)]),
);
// How long a text was looked at: time in which the page is hidden does not count.
class Clock {
  constructor() {
    this.begin();
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.seconds = this.read();
      this.since = performance.now();
    });
  }

  begin() {
    this.seconds = 0;
    this.since = performance.now();
  }

  read() {
    return this.seconds + (document.hidden ? 0 : (performance.now() - this.since) / 1000);
  }
}

// Sends one request at a time. If the server is gone, the request is kept and sent again until the server is back: no answer is lost.
class Sender {
  // away(true) when the server has gone, away(false) when it is back.
  constructor(away) {
    this.away = away;
    this.busy = false;
    addEventListener("beforeunload", (event) => {
      if (this.busy) event.preventDefault(); // an answer has not been stored yet
    });
  }

  // The answer to a request; null at once if another one is under way.
  async send(path, body) {
    if (this.busy) return null;
    this.busy = true;
    let gone = false;
    try {
      for (;;) {
        try {
          return await (await post(path, body)).json();
        } catch (problem) {
          if (problem.status !== undefined && !GONE.has(problem.status)) throw problem;
          if (!gone) this.away((gone = true));
          await new Promise((resolve) => setTimeout(resolve, PAUSE));
        }
      }
    } finally {
      this.busy = false;
      if (gone) this.away(false);
    }
  }
}

const clock = new Clock();
const answered = new Answered(() => person, (value) => (Array.isArray(value) ? "tags" : wordsOf(value)), (found) => {
  last = found;
  figures.refresh();
});
const figures = new Figures((sentence) => (part["read-aloud"].textContent = `The target is proven. ${sentence}`), answered);
const sender = new Sender((gone) => {
  part.away.textContent = gone ? "The server does not answer. What you did last is kept here, and is sent as soon as the server is back." : "";
});
let person = nameKept();
let labels = [];
let item = null;
let last = null; // what undo takes back
let tags = null;

const nameOf = (id) => labels.find((one) => one.id === id)?.name ?? (tagging && id === 0 ? "no label" : "a label that is gone");
const nameable = (id) => labels.some((one) => one.id === id);
const wordsOf = (value) => {
  if (value === null) return "skipped";
  return Array.isArray(value) ? spansOf(item.words, value, nameOf) : nameOf(value);
};

function showItem(next) {
  item = next;
  tags = null;
  part.comment.value = item?.comment ?? "";
  part["find-label"].value = "";
  filterChoices();
  part.nothing.hidden = Boolean(item);
  part.text.hidden = part.answering.querySelector("#skip").disabled = !item;
  for (const element of [part.choices, part.comment]) element.inert = !item;
  showNotice();
  part["read-aloud"].textContent = "";
  if (item) {
    if (tagging) showWords();
    else part.text.textContent = visible(item.text);
    part.text.scrollTop = 0;
  }
  showChosen();
  clock.begin();
}

function showWords() {
  const values = item.answered ?? item.words.map(() => 0);
  const held = part.text.contains(document.activeElement) || document.activeElement === document.body;
  tags = new Tags(part.text, item.words, [...values], labels);
  part["read-aloud"].textContent = item.text.slice(0, ALOUD);
  if (held) tags.choose(0, 0);
}

// Why an old text comes again, and what others said about it.
function showNotice() {
  const why = {
    disagreement: "People gave different labels to this text. Which is right?",
    doubtful: "A second look: this label may be wrong. Is it right?",
  }[item?.queue];
  const others = (item?.others ?? []).map((one) => make("p", { dir: "auto", textContent: `${one.person}: ${wordsOf(one.value)}` }));
  if (item && item.answered !== null && item.answered !== undefined) others.push(make("p", { dir: "auto", textContent: `You chose: ${wordsOf(item.answered)}` }));
  if (nameable(item?.likely)) others.push(make("p", { dir: "auto" }, "Likely: ", make("strong", { textContent: nameOf(item.likely) }), ". ", make("kbd", { textContent: "Enter" }), " accepts it."));
  part.notice.hidden = !why && !others.length;
  part.notice.replaceChildren(...(why ? [make("p", {}, make("strong", { textContent: why }))] : []), ...others);
}

function showLabels(found) {
  labels = found;
  const chosen = labels.filter((one) => !(tagging && one.id === 0));
  const buttons = chosen.map((one) => {
    const button = make("button", { type: "button" }, ...(one.key ? [make("kbd", { textContent: one.key })] : []), make("span", { dir: "auto", textContent: one.name }));
    if (one.key) button.setAttribute("aria-keyshortcuts", one.key);
    button.dataset.label = one.id;
    button.addEventListener("click", () => choose(one.id));
    return button;
  });
  if (tagging) {
    const clear = make("button", { type: "button" }, make("kbd", { textContent: "0" }), make("span", { textContent: "No label" }));
    clear.setAttribute("aria-keyshortcuts", "0");
    clear.addEventListener("click", () => choose(0));
    buttons.push(clear);
  }
  part.choices.replaceChildren(...buttons);
  part.find.hidden = chosen.length <= FEW;
  filterChoices();
  tags?.relabel(labels);
  answered.setLabels(labels);
  showChosen();
  if (item) showNotice();
}

function showChosen() {
  for (const button of part.choices.children) {
    const is = (id) => !tagging && item && String(id) === button.dataset.label;
    button.className = is(item?.answered) ? "chosen" : is(item?.likely) ? "likely" : "";
  }
}

function filterChoices() {
  const words = part["find-label"].value.toLowerCase();
  for (const button of part.choices.children) button.hidden = !button.querySelector("span").textContent.toLowerCase().includes(words);
}

// A label was chosen: the answer, or for tagging the label of the chosen words.
function choose(label) {
  if (!item || sender.busy) return;
  if (tags) part.said.textContent = `“${tags.set(label)}”: ${nameOf(label)}`;
  else answer(label);
}

async function answer(value) {
  if (!item || sender.busy) return;
  const words = value === null ? "Skipped." : Array.isArray(value) ? "Saved the tags." : `Saved as “${nameOf(value)}”.`;
  const body = { draw: item.draw, value, seconds: Math.min(clock.read(), 1e6), comment: part.comment.value };
  await exchange("/api/answer", body, words);
}

// Sends a request of this person and shows the text that comes back; keys do nothing meanwhile.
async function exchange(path, body, words) {
  if (sender.busy) return;
  part.work.setAttribute("aria-busy", "true");
  part.problem.textContent = "";
  try {
    const answer = await sender.send(path, { person, ...body });
    last = answer.last;
    if (path === "/api/undo" && !answer.item) {
      part.said.textContent = "There is nothing to undo.";
      return;
    }
    part.said.textContent = words;
    showItem(answer.item);
    if (part.work.getBoundingClientRect().top < 0) part.work.scrollIntoView(); // whoever looked at the figures sees the text again
    figures.refresh();
  } catch (problem) {
    part.problem.textContent = problem.message;
    await loadLabels(); // perhaps one was merged meanwhile
  } finally {
    part.work.setAttribute("aria-busy", "false");
  }
}

async function loadLabels() {
  try {
    showLabels((await (await get("/api/labels")).json()).labels);
  } catch {
    // the server is gone; the next answer says so
  }
}

const submit = () => tags && answer([...tags.tags]);
const skip = () => answer(null);
const undo = () => exchange("/api/undo", { draw: last }, "Your last answer is taken back.");
const act = {
  u: undo, s: skip, c: () => part.comment.focus(), "?": () => showKeys(labels, tagging), "/": () => part.find.hidden || part["find-label"].focus(),
};

function onKey(key) {
  if (part.work.hidden) return false;
  if (tags && key === "Enter") submit();
  else if (key === "Enter" && nameable(item?.likely)) choose(item.likely);
  else if (tags && key === "0") choose(0);
  else {
    const label = labels.find((one) => one.key && one.key === key && !(tagging && one.id === 0));
    if (label) choose(label.id);
    else if (act[key]) act[key]();
    else return false;
  }
  return true;
}

// Single keys, unless the person writes somewhere, a dialog is open, or they are switched off; act(key) says whether one meant something.
function setUpKeys(act) {
  const on = document.getElementById("keys-on");
  on.checked = localStorage.getItem(SINGLE_KEYS) !== "off";
  on.addEventListener("change", () => localStorage.setItem(SINGLE_KEYS, on.checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    if (!on.checked && event.key.length === 1 && event.key !== " ") return;
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest?.(FIELDS) || document.querySelector("dialog[open]")) return;
    if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return;
    if (act(event.key)) event.preventDefault();
  });
}

function showKeys(labels, tagging) {
  const rows = [
    ...labels.filter((one) => one.key && !(tagging && one.id === 0)).map((one) => [one.key, one.name]),
    ...(tagging
      ? [["← →", "the word before or after"], ["Shift + ← →", "choose several words"], ["0", "no label"], ["Enter", "save the tags"]]
      : [["Enter", "accept the likely label, where one is shown"]]),
    ["u", "undo your last answer"], ["s", "skip this text"], ["c", "comment; Esc or Enter leaves it"],
    ...(labels.length > 9 ? [["/", "find a label by its name; Enter takes the first"]] : []),
    ["?", "these keys"],
  ];
  document.getElementById("keys-rows").replaceChildren(...rows.map(([key, words]) => make(
    "tr", {}, make("th", { scope: "row" }, make("kbd", { textContent: key })), make("td", { dir: "auto", textContent: words }),
  )));
  document.getElementById("keys").showModal();
}

function leave(field) {
  field.blur();
  (tags?.words[tags.focus] ?? part.text).focus();
}

function setUpFields() {
  part.comment.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "Enter") return;
    event.preventDefault();
    leave(part.comment);
  });
  const search = part["find-label"];
  search.addEventListener("input", filterChoices);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "Enter") return;
    event.preventDefault();
    const first = [...part.choices.children].find((one) => !one.hidden);
    const found = event.key === "Enter" && search.value;
    search.value = "";
    filterChoices();
    leave(search);
    if (found && first && !event.isComposing) first.click();
  });
}

function join(name) {
  return run(part.join, async () => {
    part.taken.hidden = true;
    const [found, joined] = [await get("/api/labels"), await sender.send("/api/join", personFields(name))];
    if (!joined) return;
    if (joined.taken) {
      part.taken.querySelector("p").textContent = `Somebody called “${joined.person}” has joined in another browser, and gave ${count(joined.answered, "answer")}. Is that you?`;
      part.taken.hidden = false;
      return;
    }
    const known = (await found.json()).labels; // nothing below waits: the page is shown whole
    person = joined.person;
    last = joined.last;
    keepName(person);
    part["me-name"].textContent = person;
    part.join.hidden = true;
    part.work.hidden = part.me.hidden = false;
    item = joined.item;
    showLabels(known);
    showItem(joined.item);
    part.text.focus({ preventScroll: true });
    if (tags) tags.choose(0, 0);
    figures.refresh();
  });
}

const fields = part.join.querySelector("form").elements;
part.join.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  join(fields.person.value.trim());
});
document.getElementById("taken-same").addEventListener("click", () => {
  keepSame(fields.person.value.trim());
  join(fields.person.value.trim());
});
document.getElementById("taken-other").addEventListener("click", () => {
  part.taken.hidden = true;
  fields.person.select();
});
document.getElementById("me-change").addEventListener("click", () => {
  if (sender.busy) return;
  part.join.hidden = false;
  part.work.hidden = part.me.hidden = true;
  fields.person.focus();
});
for (const [id, task] of Object.entries({ undo, skip, submit, "keys-open": act["?"], again: () => exchange("/api/next", {}, "") })) {
  document.getElementById(id).addEventListener("click", task);
}
part.submit.hidden = !tagging;
setUpFields();
setUpKeys(onKey);
setUpNames(() => person, showLabels);
setUpTraining(() => figures.refresh());
figures.refresh();
if (person) {
  fields.person.value = person;
  join(person);
} else loadLabels(); // for the list of what was labelled
