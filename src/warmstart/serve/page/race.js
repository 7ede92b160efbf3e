// Race: what the methods scored in the race that a model came from, the learning curve in whose folder it lies, and its restarts.

import { get } from "./api.js";
import { showCurve, showRestarts } from "./curve.js";
import { count, draw, make, percent, run } from "./elements.js";

const BYTES = new Intl.NumberFormat("en", { style: "unit", unit: "byte", unitDisplay: "narrow", notation: "compact" });

export function setUp(panel) {
  const form = panel.querySelector("form");
  const findings = panel.querySelector("#race-findings");
  const results = panel.querySelector("#race-results");

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(panel, async (signal, say) => {
      const origins = form.elements.model.selectedOptions[0].dataset.origins.trim().split(" ");
      const of = `?model=${encodeURIComponent(form.elements.model.value)}`;
      const has = (one) => origins.includes(one);
      const parts = { curve: panel.querySelector("#race-curve"), restarts: panel.querySelector("#race-restarts") };
      for (const one of [findings, results, ...Object.values(parts)]) one.hidden = true;
      panel.querySelector("#race-summary").textContent = "";
      if (has("curve")) showCurve(parts.curve, await (await get(`/api/curve${of}`)).json());
      if (has("restarts")) showRestarts(parts.restarts, await (await get(`/api/restarts${of}`)).json());
      say("");
      if (!has("race")) return;
      const found = await (await get(`/api/race${of}`)).json();
      findings.replaceChildren(...found.findings.map((words) => make("li", { textContent: words })));
      panel.querySelector("#race-summary").textContent =
        `${found.task}: ${found.metric} on ${count(found.test_texts, "test text")} with 95% intervals, ${count(found.labels, "label")}, ${count(found.seeds, "seed")}.` +
        (found.saved ? ` This model is ${found.saved}.` : "");
      const least = Math.min(...found.methods.map((one) => one.low ?? one.score));
      const most = Math.max(...found.methods.map((one) => one.high ?? one.score));
      const place = (score) => 3 + (94 * (score - least)) / (most - least || 1);
      results.querySelector("tbody").replaceChildren(...found.methods.map((one) => row(one, one.method === found.saved, place)));
      findings.hidden = results.hidden = false;
      say("");
    });
  });
}

function row(one, saved, place) {
  const range = one.low === null ? "one run" : `${(100 * one.low).toFixed(1)} to ${(100 * one.high).toFixed(1)}`;
  const cell = (text, className = "number") => make("td", { className, textContent: text });
  return make(
    "tr", { className: saved ? "saved" : "" },
    make("th", { scope: "row", textContent: one.method }),
    cell(percent(one.score)), cell(range, "range"), make("td", {}, interval(one, place)),
    cell(one.validation === null ? "" : percent(one.validation)), cell(one.seconds === null ? "" : one.seconds.toFixed(1)), cell(BYTES.format(one.disk)),
  );
}

// The score as a point on its interval; the table says the same in numbers.
function interval(one, place) {
  const drawing = draw("svg", { class: "interval", viewBox: "0 0 100 12", "aria-hidden": "true" });
  if (one.low !== null) drawing.append(draw("line", { x1: place(one.low), x2: place(one.high), y1: 6, y2: 6 }));
  drawing.append(draw("circle", { cx: place(one.score), cy: 6, r: 3 }));
  return drawing;
}
