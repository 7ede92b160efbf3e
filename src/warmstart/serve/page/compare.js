// Compare: what two models make of the same texts, those first on which they disagree; of labelled texts, where each is wrong,
// by class, by slice and by length.

import { post, predict } from "./api.js";
import { nameOf } from "./classify.js";
import { beginning, make, percent } from "./elements.js";

const SHOWN = 200; // rows that are drawn
const MOST = 1000; // labelled texts, whose errors are counted in one request

// The task that compares what the form of classify holds.
export function setUp(panel, given) {
  const form = panel.closest("section").querySelector("form");
  const { model, other, labelled, sliced } = form.elements;
  const results = panel.querySelector("#compare-results");
  const errors = panel.querySelector("#compare-errors");
  const [choice, slices] = ["#compare-choice", "#compare-slices"].map((one) => panel.querySelector(one));

  function offer() {
    choice.hidden = [model, other].some((select) => select.selectedOptions[0].dataset.task !== "classification");
    slices.hidden = choice.hidden || !labelled.checked;
  }

  function lines() {
    const labelledLines = !choice.hidden && labelled.checked;
    const read = given.read(labelledLines ? (line) => parted(line, sliced.checked) : undefined);
    return read.map((one) => ({ label: null, slice: null, ...one }));
  }

  async function predictions(select, inputs, signal) {
    const found = [];
    await predict(select.value, inputs, { top: 1 }, signal, (answer) => found.push(...answer.predictions));
    return found;
  }

  // {predictions: of both models, errors: null if no text has a label}
  async function compared(lines, signal) {
    const [inputs, labels, slices] = ["input", "label", "slice"].map((part) => lines.map((line) => line[part]));
    if (labels.every((label) => label === null)) {
      return { predictions: await Promise.all([model, other].map((select) => predictions(select, inputs, signal))), errors: null };
    }
    if (inputs.length > MOST) {
      throw new Error(`The errors of at most ${count(MOST)} labelled texts are counted, but there are ${count(inputs.length)}; leave some out.`);
    }
    return (await post("/api/compare", { model: model.value, other: other.value, inputs, labels, slices }, signal)).json();
  }

  async function compare(signal, say) {
    const asked = lines();
    results.hidden = errors.hidden = true;
    say("predicting …");
    const found = await compared(asked, signal);
    const [one, another] = found.predictions;
    const rows = asked.map((line, i) => ({ ...line, one: one[i], other: another[i], equal: nameOf(one[i]) === nameOf(another[i]) }));
    const equal = rows.filter((row) => row.equal).length;
    for (const table of [results, errors]) {
      const headers = table.querySelectorAll("th");
      const first = table === results ? 1 : 2;
      headers[first].textContent = model.value;
      headers[first + 1].textContent = other.value;
    }
    results.querySelectorAll("th")[3].hidden = !found.errors;
    results.querySelector("caption").textContent = `They agree on ${equal} of ${rows.length} (${percent(equal / rows.length, 0)}).`;
    rows.sort((a, b) => a.equal - b.equal);
    results.querySelector("tbody").replaceChildren(...rows.slice(0, SHOWN).map((row) => drawn(row, found.errors)));
    if (found.errors) showErrors(found.errors);
    results.hidden = false;
    say(rows.length > SHOWN ? `the first ${SHOWN} are shown` : "");
  }

  function showErrors({ groups, p, better, worse }) {
    const all = groups[0];
    const told = all.accuracies.map((one, i) => `${[model, other][i].value} is right on ${count(one.right)} (${percent(one.value)})`);
    const test = p === null ? "too few texts for a p-value" : `p ${p < 0.001 ? "< 0.001" : `= ${p.toFixed(3)}`} by a sign test`;
    panel.querySelector("#compare-about").textContent =
      `Of ${count(all.count)} labelled text${all.count === 1 ? "" : "s"}, ${told.join(", and ")}. Only the first is right on ${count(better)}, ` +
      `only the second on ${count(worse)}: ${test}.`;
    panel.querySelector("#compare-notes").textContent =
      "Below each share is its 95% interval (Wilson), and below each difference (points; the first less the second on the same texts) that of the pairs. " +
      "Each interval is for its row alone: among many rows, some miss by chance. Lengths are thirds of these texts, in words between spaces.";
    errors.querySelector("tbody").replaceChildren(...groups.map(group));
    errors.hidden = false;
  }

  for (const field of [other, labelled]) field.addEventListener("change", offer);
  model.addEventListener("change", () => {
    if (other.value === model.value) other.selectedIndex = (other.selectedIndex + 1) % other.length;
    offer();
  });
  offer();
  return compare;
}

const count = (number) => number.toLocaleString("en");

// "label<TAB>text", or "label<TAB>slice<TAB>text", as its parts; without a tab, or with nothing before it, there is no label.
function parted(line, withSlice) {
  const [label, ...rest] = line.split("\t");
  if (!rest.length) return { text: line, label: null, slice: null };
  const slice = withSlice && rest.length > 1 ? rest.shift().trim() : "";
  const text = rest.join("\t");
  if (!text.trim()) throw new Error(`after a label and a tab there must be a text, but there is none after '${label.trim()}'`);
  return { text, label: label.trim() || null, slice: slice || null };
}

function nameOfGroup(one) {
  if (one.kind === "all") return "All";
  if (one.kind === "class") return one.label;
  if (one.kind === "slice") return `slice: ${one.slice}`;
  return one.least === one.most ? `${count(one.most)} word${one.most === 1 ? "" : "s"}` : `${count(one.least)} to ${count(one.most)} words`;
}

function group(one) {
  const signed = (value) => `${value < 0 ? "−" : value > 0 ? "+" : ""}${Math.abs(100 * value).toFixed(1)}`;
  const cell = (figure, range) => make("td", {}, figure, make("div", { className: "range quiet", textContent: range }));
  const { value, low, high } = one.difference;
  return make(
    "tr", { className: one.kind },
    make("th", { scope: "row", dir: "auto", textContent: nameOfGroup(one) }),
    make("td", { className: "number", textContent: count(one.count) }),
    ...one.accuracies.map((share) => cell(percent(share.value), `${(100 * share.low).toFixed(1)} to ${(100 * share.high).toFixed(1)}`)),
    cell(signed(value), `${signed(low)} to ${signed(high)}`),
  );
}

function drawn(row, errors) {
  const cell = (one) => {
    const sure = one.confidence === undefined ? "" : ` (${percent(one.confidence, 0)})`;
    return make("td", { className: row.equal ? "" : "differs", textContent: nameOf(one) + sure });
  };
  const truth = errors ? [make("td", { textContent: row.label ?? "" })] : [];
  return make("tr", {}, make("td", { className: "text", dir: "auto", textContent: beginning(row.text) }), cell(row.one), cell(row.other), ...truth);
}
