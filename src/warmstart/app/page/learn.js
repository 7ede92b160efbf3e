// Learn: the attention lab. Keys and queries in the plane to be moved, and what becomes of the weights and the output.

import { bar, draw, make, percent } from "./elements.js";
import { deviation, keyLengths, mean, meanWeights, noisyWeights, scoresOf, softmaxWeights } from "./lab.js";
import { Plane } from "./plane.js";

const NAMES = ["a", "b", "c", "d"];
const KEYS = [[1, 0], [0, 1], [-1, 0], [0, -1]];
const VALUES = [[1, 1], [-1, 1], [-1, -1], [1, -1]]; // corners, so that every mixture of two neighbours is a place of its own
const LENGTHS = keyLengths(200);
const BINS = 20;
const EXPERIMENTS = {
  copying: {
    beta: 6, queries: [[1, 0]], noisy: false,
    about: "The query points along key a: with a large beta nearly all of the weight goes to a, and the output is its value.",
  },
  averaging: {
    beta: 6, queries: [[1, 1]], noisy: false,
    about: "The query is beta times the sum of the keys a and b. Both have the same score, so the output is the mean of their values.",
  },
  "one head": {
    beta: 10, queries: [[1, 1]], noisy: true,
    about: "The same query, but the length z of key a varies: its weight among a and b is sigmoid(beta (z − 1)): one head picks a or b at random. Move a towards the middle and back.",
  },
  "two heads": {
    beta: 10, queries: [[1, 0], [0, 1]], noisy: true,
    about: "Each head copies one value, and their outputs are averaged: a keeps about half of the weight, as long as its key does not change direction.",
  },
};

export function setUp(panel) {
  const [experiment, beta, betaValue, about, finding, table, lengths] =
    ["experiment", "beta", "beta-value", "about", "finding", "weights", "lengths"].map((one) => panel.querySelector(`#learn-${one}`));
  const output = panel.querySelector("#learn-output");
  const plane = new Plane(panel.querySelector("#learn-plane"), "learn-help", (point, byKeyboard) => show(byKeyboard ? point : null));
  let points = [];

  const pointsOf = (kind) => points.filter((one) => one.kind.startsWith(kind));

  function begin() {
    const { beta: strength, queries, about: words } = EXPERIMENTS[experiment.value];
    const query = (at, i) => (queries.length > 1 ? { name: `q${i + 1}`, says: `query of head ${i + 1}` } : { name: "q", says: "query" });
    points = [
      ...queries.map((at, i) => ({ ...query(at, i), kind: `query-${i + 1}`, at: [...at] })),
      ...KEYS.map((at, i) => ({ name: NAMES[i], says: `key ${NAMES[i]}`, kind: "key", at: [...at] })),
    ];
    beta.value = strength;
    about.textContent = words;
    show();
  }

  // Draws everything; a point that was moved by the keyboard is named in the finding, which is read aloud.
  function show(named = null) {
    const strength = beta.valueAsNumber;
    const keys = pointsOf("key").map((one) => one.at);
    const queries = pointsOf("query").map((one) => one.at.map((x) => strength * x));
    const weights = meanWeights(queries, keys);
    betaValue.textContent = strength.toFixed(1);
    plane.show(points);
    output.replaceChildren(...drawnOutput(weights));
    const said = findingOf(weights);
    finding.textContent = named ? `${named.says[0].toUpperCase()}${named.says.slice(1)} at ${named.at.map((one) => one.toFixed(2)).join(", ")}. ${said}` : said;
    showTable(table, queries, keys, weights);
    lengths.hidden = !EXPERIMENTS[experiment.value].noisy;
    if (!lengths.hidden) showLengths(lengths, noisyWeights(queries, keys, LENGTHS));
  }

  experiment.addEventListener("change", begin);
  panel.querySelector("#learn-reset").addEventListener("click", begin);
  beta.addEventListener("input", () => show());
  begin();
}

// What the output is, in a sentence.
function findingOf(weights) {
  const order = weights.map((weight, i) => ({ weight, name: NAMES[i] })).sort((one, other) => other.weight - one.weight);
  const [first, second] = order;
  const but = (rest) => (rest < 0.0005 ? "" : `, except for ${percent(rest)} of the weight`);
  if (first.weight > 0.9) return `The output is the value of ${first.name}${but(1 - first.weight)}.`;
  if (first.weight - second.weight < 0.05 && first.weight + second.weight > 0.9) {
    const pair = [first.name, second.name].sort().join(" and ");
    return `The output is the mean of the values of ${pair}${but(1 - first.weight - second.weight)}.`;
  }
  return `The output mixes the values: ${order.map(({ name, weight }) => `${name} ${percent(weight, 0)}`).join(", ")}.`;
}

function drawnOutput(weights) {
  const [x, y] = [0, 1].map((axis) => weights.reduce((sum, weight, i) => sum + weight * VALUES[i][axis], 0));
  const lines = VALUES.map(([left, up], i) => draw("line", { class: "share", x1: left, y1: -up, x2: x, y2: -y, "stroke-width": 0.12 * weights[i] }));
  const corners = VALUES.flatMap(([left, up], i) => [
    draw("circle", { class: "value", cx: left, cy: -up, r: 0.16 }),
    draw("text", { x: left, y: -up }, NAMES[i]),
  ]);
  return [...lines, ...corners, draw("circle", { class: "output", cx: x, cy: -y, r: 0.09 })];
}

function showTable(table, queries, keys, weights) {
  const heads = queries.map((query) => softmaxWeights(query, keys));
  const several = queries.length > 1;
  const titles = several ? [...heads.map((_, i) => `Head ${i + 1}`), "Mean weight"] : ["Score", "Weight"];
  const columns = several ? [...heads, weights] : [scoresOf(queries[0], keys), weights];
  const number = (value) => make("td", { className: "number", textContent: value.toFixed(3) });
  table.querySelector("thead").replaceChildren(make(
    "tr", {}, make("th", { scope: "col", textContent: "Key" }),
    ...titles.map((title) => make("th", { scope: "col", className: "number", textContent: title })), make("td"),
  ));
  table.querySelector("tbody").replaceChildren(...weights.map((weight, i) => make(
    "tr", {}, make("th", { scope: "row", textContent: NAMES[i] }),
    ...columns.map((column) => number(column[i])), make("td", {}, bar(weight)),
  )));
}

// A histogram of the weight of a, for many lengths of its key.
function showLengths(figure, shares) {
  const counts = Array(BINS).fill(0);
  for (const share of shares) counts[Math.min(BINS - 1, Math.floor(share * BINS))] += 1;
  const most = Math.max(...counts);
  const words = `Weight of a among a and b, for ${shares.length} lengths of its key from N(1, 1/2): mean ${mean(shares).toFixed(2)}, standard deviation ${deviation(shares).toFixed(2)}.`;
  figure.querySelector("svg").replaceChildren(
    ...counts.map((count, i) => draw("rect", { x: i + 0.05, y: 6 - (5.8 * count) / most, width: 0.9, height: (5.8 * count) / most })),
    draw("line", { class: "axis", x1: 0, x2: BINS, y1: 6, y2: 6 }),
    ...[0, 0.5, 1].map((at) => draw("text", { x: at * BINS, y: 6.8, class: ["start", "", "end"][2 * at] }, String(at))),
  );
  figure.querySelector("figcaption").textContent = words;
}
