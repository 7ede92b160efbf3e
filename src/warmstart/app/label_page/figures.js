// Progress, people, accuracy, target, outlook and price: asked for after answers, at most once a second, and from time to time.

import { get } from "./api.js";
import { count, make, percent } from "./elements.js";
import { showTraining } from "./training.js";

const LEAST = 1000; // milliseconds between two requests
const FITTING = 2000; // until the next one while the model learns
const ELSE = 15_000;
const [WIDE, HIGH, LEFT, FOOT] = [320, 180, 40, 30]; // of the drawing

const part = (id) => document.getElementById(id);

// A part of a drawing.
function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export class Figures {
  // proved() is called once, when the target turns out to be proven; answered is the list of what was labelled.
  constructor(proved, answered) {
    Object.assign(this, { proved, answered });
    this.proven = null;
    this.last = -Infinity;
    this.timer = null;
    document.addEventListener("visibilitychange", () => this.refresh());
  }

  // Asks soon, never twice within a second.
  refresh(wait = 0) {
    clearTimeout(this.timer);
    if (document.hidden) return;
    this.timer = setTimeout(() => this.ask(), Math.max(wait, this.last + LEAST - performance.now(), 0));
  }

  async ask() {
    this.last = performance.now();
    let status = null;
    try {
      status = await (await get("/api/status")).json();
    } catch {
      // the server is gone for now; whoever answers is told
    }
    this.last = performance.now();
    if (status) this.show(status);
    this.refresh(status?.model?.fitting || status?.training?.state === "running" ? FITTING : ELSE);
  }

  show(status) {
    showProgress(status);
    showModel(status);
    showMarks(status);
    showOutlook(status.outlook, status.target?.target);
    showPeople(status);
    showTraining(status.training);
    this.answered.refresh(status);
    const proven = Boolean(status.target?.proven);
    if (proven && this.proven === false) this.proved(status.target.sentence);
    this.proven = proven;
  }
}

// Towards the next goal, not the end of the pool.
function showProgress({ progress, skipped }) {
  part("progress").hidden = progress.of === null;
  part("progress").max = Math.max(progress.of ?? 1, 1);
  part("progress").value = progress.labels;
  part("progress-words").textContent = progress.sentence + (skipped ? `; ${skipped.toLocaleString("en")} skipped` : "");
}

// From 0 to 100%: how good the model that learns along is, and the goal; a mark that says too little is left out.
function showMarks({ newest, target }) {
  const marks = [
    newest && newest.tells && ["now", newest.estimate, `Now: about ${percent(newest.estimate, 0)}`],
    target && ["goal", target.target, `Goal: ${percent(target.target, 0)}${target.proven ? ", proven" : ""}`],
  ].filter(Boolean);
  part("marks").hidden = !newest;
  const x = (share) => 10 + 300 * share;
  const shapes = {
    now: (at) => draw("circle", { class: "now", cx: at, cy: 20, r: 7 }),
    goal: (at) => draw("line", { class: "goal", x1: at, x2: at, y1: 4, y2: 36 }),
  };
  const band = newest?.tells ? [draw("line", { class: "band", x1: x(newest.low), x2: x(newest.high), y1: 20, y2: 20 })] : [];
  part("marks").querySelector("svg").replaceChildren(
    draw("line", { class: "ground", x1: x(0), x2: x(1), y1: 20, y2: 20 }), ...band, ...marks.toReversed().map(([kind, share]) => shapes[kind](x(share))),
  );
  const sample = (kind) => draw("svg", { viewBox: "0 0 20 40", class: "sample", "aria-hidden": "true" }, shapes[kind](10));
  part("marks-words").replaceChildren(...marks.map(([kind, , words]) => make("span", {}, sample(kind), words)));
}

function showModel({ sentence, shares, waiting, target, price, model }) {
  part("accuracy").textContent = sentence;
  part("shares").textContent = shares;
  part("waiting").textContent = waiting;
  part("target").textContent = target?.sentence ?? "";
  part("price").textContent = price?.sentence ?? "";
  part("model").textContent = model
    ? `Model ${model.version}, from ${model.labels ? count(model.labels, "label") : "the names of the labels"}${model.fitting ? "; it is learning from the latest ones" : ""}.`
    : "";
}

function showPeople({ people, agreement, disagreements, judge, doubtful }) {
  part("people-rows").replaceChildren(...people.map((one) => make(
    "tr", {}, make("th", { scope: "row", dir: "auto", textContent: one.person }),
    make("td", { className: "number", textContent: one.answered.toLocaleString("en") }),
    make("td", { className: "number", textContent: one.median_seconds === null ? "" : one.median_seconds.toFixed(1) }),
  )));
  const alpha = agreement?.alpha ?? null;
  part("agreement").textContent = alpha === null
    ? "Agreement is known once two people have answered the same texts."
    : `Krippendorff’s alpha ${alpha.toFixed(2)} (95% interval ${agreement.low.toFixed(2)} to ${agreement.high.toFixed(2)}), on ${count(agreement.texts, "text")} that several people answered (1: they always agree, 0: as by chance).`;
  part("queues").textContent = [
    disagreements ? `${count(disagreements, "text")} with different answers, to be decided by ${judge || "somebody who has not answered"}.` : "",
    doubtful ? `${count(doubtful, "label")} to look at a second time.` : "",
  ].filter(Boolean).join(" ");
}

// Points with intervals over the number of labels, the target as a dashed line.
function showOutlook(outlook, aim) {
  const points = outlook?.points ?? [];
  part("outlook").hidden = !outlook;
  part("outlook-table").hidden = !points.length;
  if (!outlook) return;
  part("outlook-words").textContent = outlook.sentence;
  const svg = part("outlook").querySelector("svg");
  svg.style.display = points.length ? "" : "none";
  if (!points.length) return;
  const most = Math.max(...points.map(([labels]) => labels), 1);
  const values = [...points.flatMap(([, , low, high]) => [low, high]), ...(aim == null ? [] : [aim])];
  const [least, top] = [Math.floor(20 * Math.min(...values)) / 20, Math.ceil(20 * Math.max(...values)) / 20];
  const x = (labels) => LEFT + ((WIDE - LEFT - 12) * labels) / most;
  const y = (value) => HIGH - FOOT - ((HIGH - FOOT - 12) * (value - least)) / (top - least || 1);
  const axis = (at) => draw("line", { class: "axis", x1: LEFT, x2: WIDE, y1: y(at), y2: y(at) });
  const mark = (at) => draw("text", { x: LEFT - 5, y: y(at) + 4, class: "before" }, percent(at, 0));
  const under = (labels) => draw("text", { x: x(labels), y: HIGH - 14 }, labels.toLocaleString("en"));
  svg.replaceChildren(
    axis(least), axis(top), mark(least), mark(top), under(0), under(most),
    draw("text", { x: (LEFT + WIDE) / 2, y: HIGH - 2 }, "labels"),
    ...(aim == null ? [] : [draw("line", { class: "aim", x1: LEFT, x2: WIDE, y1: y(aim), y2: y(aim) })]),
    ...points.flatMap(([labels, accuracy, low, high]) => [
      draw("line", { class: "range", x1: x(labels), x2: x(labels), y1: y(low), y2: y(high) }),
      draw("circle", { cx: x(labels), cy: y(accuracy), r: 3.5 }),
    ]),
  );
  part("outlook-table").querySelector("tbody").replaceChildren(...points.map(([labels, accuracy, low, high]) => make(
    "tr", {}, make("td", { className: "number", textContent: labels.toLocaleString("en") }),
    make("td", { className: "number", textContent: percent(accuracy) }), make("td", { textContent: `${percent(low)} to ${percent(high)}` }),
  )));
}
