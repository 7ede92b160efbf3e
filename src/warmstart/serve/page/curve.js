// Learning curves and restarts, drawn and as tables; one small chart for each method, all on the same axes.

import { draw, make, percent } from "./elements.js";

const [WIDTH, HEIGHT, LEFT, BELOW, MARGIN] = [270, 150, 44, 20, 10]; // units of a drawing
const count = (number) => number.toLocaleString("en");

// Places of values between two ends, and the ends: half a point more on each side, so that equal values have a place, too.
function scale(values, from, to) {
  const [least, most] = [Math.min(...values) - 0.005, Math.max(...values) + 0.005];
  return { least, most, at: (value) => from + ((to - from) * (value - least)) / (most - least) };
}

const text = (words, x, y, kind = "") => draw("text", { x, y, class: kind }, words);

export function showCurve(part, found) {
  const points = found.methods.flatMap((one) => one.points);
  const sizes = [...new Set(points.map((one) => one.labels))].sort((a, b) => a - b);
  part.querySelector(".findings").replaceChildren(...found.findings.map((words) => make("li", { textContent: words })));
  part.querySelector("#race-curve-about").textContent =
    `${found.task}: ${found.metric} on ${count(found.test_texts)} test texts by number of labels (on a logarithmic axis), with 95% intervals.`;
  const up = scale(points.flatMap((one) => [one.score, one.low ?? one.score, one.high ?? one.score]), HEIGHT - BELOW, MARGIN);
  const logarithms = sizes.map(Math.log);
  const [first, last] = [logarithms[0], logarithms.at(-1)];
  const across = (labels) => LEFT + MARGIN + ((WIDTH - LEFT - 3 * MARGIN) * (Math.log(labels) - first)) / (last - first || 1);
  part.querySelector(".charts").replaceChildren(...found.methods.map((one) => curve(one, sizes, up, across)));
  part.querySelector("thead").replaceChildren(
    make("tr", {}, make("th", { scope: "col", textContent: "Method" }),
      ...sizes.map((size) => make("th", { scope: "col", textContent: `${count(size)} labels` }))),
  );
  part.querySelector("tbody").replaceChildren(...found.methods.map((one) => scores(one, sizes)));
  part.hidden = false;
}

function curve({ method, points }, sizes, up, across) {
  const drawing = draw("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
  const line = (x1, y1, x2, y2, kind) => draw("line", { x1, y1, x2, y2, class: kind });
  const ends = [...new Set([sizes[0], sizes.at(-1)])];
  drawing.append(
    line(LEFT, MARGIN, LEFT, HEIGHT - BELOW, "axis"), line(LEFT, HEIGHT - BELOW, WIDTH, HEIGHT - BELOW, "axis"),
    text(percent(up.most, 0), LEFT - 4, MARGIN + 2, "end"), text(percent(up.least, 0), LEFT - 4, HEIGHT - BELOW - 2, "end"),
    ...ends.map((size) => text(count(size), across(size), HEIGHT - 8)),
    draw("polyline", { points: points.map((one) => `${across(one.labels)},${up.at(one.score)}`).join(" ") }),
  );
  for (const one of points) {
    const x = across(one.labels);
    if (one.low !== null) drawing.append(line(x, up.at(one.low), x, up.at(one.high), "whisker"));
    drawing.append(draw("circle", { cx: x, cy: up.at(one.score), r: 3.5 }));
  }
  return make("figure", {}, drawing, make("figcaption", { textContent: method }));
}

function scores({ method, points }, sizes) {
  const cells = sizes.map((size) => {
    const one = points.find((point) => point.labels === size);
    if (!one) return make("td");
    const range = one.low === null ? "one run" : `${(100 * one.low).toFixed(1)} to ${(100 * one.high).toFixed(1)}`;
    return make("td", {}, percent(one.score), make("div", { className: "range quiet", textContent: range }));
  });
  return make("tr", {}, make("th", { scope: "row", textContent: method }), ...cells);
}

export function showRestarts(part, found) {
  const named = (i) => (found.seeds ? String(found.seeds[i]) : `${i + 1}`);
  const kept = found.saved === null ? "" : ` The saved model is that of seed ${named(found.saved)}, marked.`;
  part.querySelector("#race-restarts-about").textContent =
    `${found.task}: ${found.metric} of each restart${found.test_texts ? `; test: ${count(found.test_texts)} texts` : ""}.${kept}` +
    (found.methods.some((one) => one.validation) ? " A restart that is chosen for its validation score owes some of it to luck." : "");
  const all = found.methods.flatMap((one) => [...one.test, ...(one.validation ?? [])]);
  const across = scale(all, LEFT + 3 * MARGIN, WIDTH - MARGIN);
  part.querySelector(".charts").replaceChildren(...found.methods.map((one, i) => strip(one, i ? null : found.saved, across)));
  part.querySelectorAll("th")[1].textContent = found.seeds ? "Seed" : "Run";
  part.querySelector("tbody").replaceChildren(...found.methods.flatMap((one, i) => one.test.map((score, run) => make(
    "tr", { className: !i && run === found.saved ? "saved" : "" },
    make("th", { scope: "row", textContent: one.method }), make("td", { textContent: named(run) }),
    make("td", { className: "number", textContent: one.validation ? percent(one.validation[run]) : "" }),
    make("td", { className: "number", textContent: percent(score) }),
  ))));
  part.hidden = false;
}

// A dot for each restart, on a line for each split.
function strip({ method, test, validation }, saved, across) {
  const rows = [...(validation ? [["validation", validation]] : []), ["test", test]];
  const bottom = 26 * rows.length;
  const drawing = draw("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${bottom + 20}`, "aria-hidden": "true" });
  rows.forEach(([name, values], i) => {
    const y = 14 + 26 * i;
    drawing.append(draw("line", { x1: LEFT + 2 * MARGIN, x2: WIDTH, y1: y, y2: y, class: "axis" }), text(name, 0, y, "start"));
    const places = values.map((value, run) => ({ value, run })).sort((a, b) => (a.run === saved) - (b.run === saved)); // the saved one on top
    for (const { value, run } of places) drawing.append(draw("circle", { cx: across.at(value), cy: y, r: 4, class: run === saved ? "saved" : "" }));
  });
  drawing.append(text(percent(across.least), LEFT + 2 * MARGIN, bottom + 12, "start"), text(percent(across.most), WIDTH, bottom + 12, "end"));
  return make("figure", {}, drawing, make("figcaption", { textContent: method }));
}
