// Progress, people, accuracy, target, outlook and price: asked for after answers, at most once a second, and from time to time.

import { get } from "./api.js";
import { draw, make, percent } from "./elements.js";

const LEAST = 1000; // milliseconds between two requests
const FITTING = 2000; // until the next one while the model learns
const ELSE = 15_000;
const [WIDE, HIGH, LEFT, FOOT] = [320, 180, 40, 30]; // of the drawing

const part = (id) => document.getElementById(id);
const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

export class Figures {
  // proved() is called once, when the target turns out to be proven.
  constructor(proved) {
    this.proved = proved;
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
    this.refresh(status?.model?.fitting ? FITTING : ELSE);
  }

  show(status) {
    showProgress(status);
    showModel(status);
    showOutlook(status.outlook, status.target?.target);
    showPeople(status);
    const proven = Boolean(status.target?.proven);
    if (proven && this.proven === false) this.proved(status.target.sentence);
    this.proven = proven;
  }
}

function showProgress({ texts, labelled, skipped }) {
  part("progress").max = Math.max(texts, 1);
  part("progress").value = labelled;
  part("progress-words").textContent =
    `${labelled.toLocaleString("en")} of ${count(texts, "text")} labelled` + (skipped ? `, ${skipped.toLocaleString("en")} skipped` : "");
}

function showModel({ accuracy, target, price, model }) {
  const figure = part("accuracy-figure");
  figure.replaceChildren();
  if (accuracy && accuracy.estimate !== null) {
    figure.append(percent(accuracy.estimate), " ", make("small", { textContent: `${percent(accuracy.low)} to ${percent(accuracy.high)}` }));
  }
  part("accuracy").textContent = accuracy?.sentence ?? "There is no estimate yet: the first comes once a model has learned from your labels.";
  part("target").textContent = target?.sentence ?? "";
  const state = part("target-state");
  state.textContent = target ? `Target ${percent(target.target, 0)}: ${target.proven ? "proven" : "not proven yet"}` : "";
  state.className = target?.proven ? "state proven" : "state";
  part("price").textContent = price?.sentence ?? "";
  part("model").textContent = model
    ? `Model ${model.version}, from ${count(model.labels, "label")}${model.fitting ? "; it is learning from the latest ones" : ""}.`
    : "";
}

function showPeople({ people, agreement, disagreements, doubtful }) {
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
    disagreements ? `${count(disagreements, "text")} with different answers to decide.` : "",
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
