// Classify: bars of probabilities, "I don't know" below a guaranteed error rate, and which words a prediction depends on.

import { get, post, predict } from "./api.js";
import { bar, linesOf, make, percent, run } from "./elements.js";

const SHOWN = 50; // results that are drawn at once

export function setUp(panel) {
  const form = panel.querySelector("form");
  const select = form.elements.model;
  const list = panel.querySelector("#classify-results");
  const more = panel.querySelector("#classify-more");
  const save = panel.querySelector("#classify-save");
  const summary = panel.querySelector("#classify-summary");
  const guarantee = panel.querySelector("#classify-guarantee");
  const guaranteed = panel.querySelector("#classify-guaranteed");
  const slider = form.elements.error;
  const sliderValue = panel.querySelector("#classify-error-value");
  let results = [];
  let drawn = 0;
  let targets = [];

  const option = () => select.selectedOptions[0];
  const target = () => (guarantee.hidden || slider.valueAsNumber >= targets.length ? null : targets[slider.valueAsNumber]);

  function showTarget() {
    const chosen = target();
    sliderValue.textContent = chosen
      ? `at most ${percent(chosen.target_error)}: ${percent(chosen.answered, 0)} of texts get a label`
      : "any: every text gets a label";
  }

  async function loadGuarantees() {
    targets = [];
    guarantee.hidden = !option()?.dataset.guarantees;
    if (guarantee.hidden) return;
    targets = (await (await get(`/api/guarantees?model=${encodeURIComponent(select.value)}`)).json()).guarantees;
    guarantee.hidden = !targets.length;
    slider.max = targets.length;
    slider.value = targets.length;
    showTarget();
  }

  function drawMore() {
    const until = Math.min(results.length, drawn + SHOWN);
    list.append(...results.slice(drawn, until).map((one) => item(one, select.value, option()?.dataset.explains)));
    drawn = until;
    more.hidden = drawn >= results.length;
    more.textContent = `Show more (${(results.length - drawn).toLocaleString("en")} left)`;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(panel, async (signal, say) => {
      const texts = linesOf(form.elements.texts);
      results = [];
      drawn = 0;
      list.replaceChildren();
      for (const element of [more, save, summary, guaranteed]) element.hidden = true;
      const chosen = target();
      const progress = (done) => say(`${done.toLocaleString("en")} of ${texts.length.toLocaleString("en")}`);
      progress(0);
      const settings = chosen ? { top: 10, target_error: chosen.target_error } : { top: 10 };
      await predict(option(), texts, settings, signal, (answer, part, done) => {
        results.push(...answer.predictions.map((prediction, i) => ({ text: part[i], ...prediction })));
        if (answer.guarantee) guaranteed.textContent = answer.guarantee;
        guaranteed.hidden = !answer.guarantee;
        if (drawn < SHOWN) drawMore();
        progress(done);
      });
      more.hidden = drawn >= results.length;
      if (!more.hidden) more.textContent = `Show more (${(results.length - drawn).toLocaleString("en")} left)`;
      save.hidden = false;
      summary.textContent = summaryOf(results);
      summary.hidden = results.length < 2;
      say(`${results.length.toLocaleString("en")} done`);
    });
  });
  select.addEventListener("change", () => run(panel, loadGuarantees));
  slider.addEventListener("input", showTarget);
  more.addEventListener("click", drawMore);
  save.addEventListener("click", () => download(results));
  if (option()?.dataset.guarantees) run(panel, loadGuarantees);
}

export function nameOf(one) {
  if (one.abstained) return "I don’t know";
  if ("label" in one) return one.label;
  if ("labels" in one) return one.labels.join(", ") || "none of them";
  if ("number" in one) return String(one.number);
  if ("tags" in one) return one.words.map((word, i) => `${word}/${one.tags[i] ?? "?"}`).join(" ");
  return one.alternative ?? one.answer ?? "";
}

function item(one, model, explains) {
  const text = make("p", { className: "text", dir: "auto", textContent: one.text });
  const bars = make("div", { className: "bars" });
  if (one.abstained) {
    bars.append(make("strong", { textContent: nameOf(one) }), make("span", { className: "number", textContent: "" }), make("span"));
  }
  const pairs = Array.isArray(one.probabilities) ? [] : Object.entries(one.probabilities ?? {});
  for (const [label, probability] of pairs.slice(0, 5)) {
    bars.append(make("span", { textContent: label }), make("span", { className: "number", textContent: percent(probability) }), bar(probability));
  }
  if (!pairs.length) bars.append(make("strong", { textContent: nameOf(one) }), make("span"), make("span"));
  const found = make("li", {}, text, bars);
  if (explains && pairs.length) {
    const why = make("button", { type: "button", className: "small", textContent: "Why?" });
    why.addEventListener("click", () => explain(why, text, one, model));
    found.append(why);
  }
  return found;
}

async function explain(button, text, one, model) {
  button.disabled = true;
  const note = make("p", { className: "quiet", role: "status", textContent: "reading it without each word …" });
  button.after(note);
  try {
    const target = Object.keys(one.probabilities)[0];
    const found = await (await post("/api/explain", { model, text: one.text, target })).json();
    const values = found.importance.erasure;
    const most = Math.max(...values.map(Math.abs), 1e-9);
    const heat = make("span", { className: "heat" });
    found.words.forEach((word, i) => {
      const span = make("span", {
        className: values[i] < 0 ? "against" : "for",
        title: `${values[i].toFixed(3)} nats`,
        textContent: word,
      });
      span.style.setProperty("--strength", (0.75 * Math.abs(values[i]) / most).toFixed(2));
      heat.append(span, " ");
    });
    text.replaceChildren(heat);
    const faithful = found.faithfulness.erasure;
    note.textContent =
      `Blue words speak for “${found.target}”, orange ones against it, by what it loses without them. Faithfulness of this order of words: ` +
      `${faithful.toFixed(2)}, of random orders ${found.faithfulness_of_random_orders.toFixed(2)} (1 is best).`;
    button.remove();
  } catch (problem) {
    note.textContent = problem.message;
    note.className = "error";
    button.disabled = false;
  }
}

function summaryOf(results) {
  const counts = new Map();
  for (const one of results) counts.set(nameOf(one), (counts.get(nameOf(one)) ?? 0) + 1);
  const order = [...counts].sort((a, b) => b[1] - a[1]);
  const parts = order.slice(0, 8).map(([name, count]) => `${name}: ${count.toLocaleString("en")}`);
  return parts.join(" · ") + (order.length > 8 ? ` · ${order.length - 8} more` : "");
}

function download(results) {
  const cell = (value) => `"${String(value ?? "").replaceAll('"', '""').replace(/^([=+\-@\t\r])/, "'$1")}"`;
  const lines = results.map((one) => [one.text, nameOf(one), one.confidence ?? ""].map(cell).join(","));
  const link = make("a", { download: "predictions.csv" });
  link.href = URL.createObjectURL(new Blob([["text,prediction,confidence", ...lines].join("\n")], { type: "text/csv" }));
  link.click();
  URL.revokeObjectURL(link.href);
}
