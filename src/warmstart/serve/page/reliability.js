// Whether confidence is calibrated: how many predictions of a confidence are right, drawn and as a table with the same figures.

import { draw, make, percent } from "./elements.js";

const [SIZE, START, FOOT] = [200, 44, 34]; // units of the drawing: its square, what is left of it, and what is below it
const HEAD = 10;
const across = (share) => START + SIZE * share;
const up = (share) => HEAD + SIZE * (1 - share);

export function showCalibration(part, found) {
  const about = part.querySelector("#checks-calibration-about");
  const shown = [part.querySelector(".charts"), part.querySelector(".scroll")];
  for (const one of shown) one.hidden = !found;
  part.hidden = false;
  if (!found) {
    about.textContent =
      "No texts were held out to compare its confidence with: `adapt --calibration-fraction 0.5` holds some out, a task of type answers always does.";
    return;
  }
  about.textContent =
    `Of ${found.texts.toLocaleString("en")} held-out texts, which chose nothing, ${percent(found.accuracy)} are right. Calibration error ` +
    `${percent(found.error)}, where chance alone gives a calibrated model ${percent(found.error_of_chance)}. On the dashed line confidence and accuracy are equal.`;
  shown[0].replaceChildren(make("figure", {}, diagram(found.bins), make("figcaption", { textContent: "Accuracy by confidence, with 95% intervals" })));
  part.querySelector("tbody").replaceChildren(...found.bins.map(binRow));
}

function diagram(bins) {
  const drawing = draw("svg", { class: "chart", viewBox: `0 0 ${START + SIZE + 2 * HEAD} ${HEAD + SIZE + FOOT}`, "aria-hidden": "true" });
  const line = (from, to, kind) => draw("line", { x1: across(from[0]), y1: up(from[1]), x2: across(to[0]), y2: up(to[1]), class: kind });
  const words = (text, x, y, kind = "") => draw("text", { x, y, class: kind }, text);
  drawing.append(
    line([0, 0], [0, 1], "axis"), line([0, 0], [1, 0], "axis"), line([0, 0], [1, 1], "axis even"),
    ...[0, 0.5, 1].flatMap((share) => [
      words(percent(share, 0), START - 4, up(share), "end"), words(percent(share, 0), across(share), HEAD + SIZE + 10),
    ]),
    words("confidence", across(0.5), HEAD + SIZE + 26),
  );
  drawing.append(draw("polyline", { points: bins.map((one) => `${across(one.confidence)},${up(one.accuracy)}`).join(" ") }));
  for (const one of bins) {
    drawing.append(line([one.confidence, one.low], [one.confidence, one.high], "whisker"));
    drawing.append(draw("circle", { cx: across(one.confidence), cy: up(one.accuracy), r: 3.5 }));
  }
  return drawing;
}

function binRow(one) {
  const cell = (text) => make("td", { className: "number", textContent: text });
  return make(
    "tr", {}, make("th", { scope: "row", className: "number", textContent: percent(one.confidence) }), cell(percent(one.accuracy)),
    make("td", { className: "range", textContent: `${(100 * one.low).toFixed(1)} to ${(100 * one.high).toFixed(1)}` }), cell(one.count.toLocaleString("en")),
  );
}
