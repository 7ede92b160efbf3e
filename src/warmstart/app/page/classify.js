// Classify: bars of probabilities, "I don't know" below a guaranteed error rate, which words a prediction depends on, and similar
// training texts.

import { get, post, postWhenReady, predict } from "./api.js";
import { bar, beginning, make, percent, run } from "./elements.js";
import { setUpTabs } from "./tabs.js";
import { textsOf } from "./texts.js";

const SHOWN = 50; // results that are drawn at once
const offers = [];

// Another script puts an element beside each prediction: offer(one, option) makes it, or gives null.
export function offerBeside(offer) {
  offers.push(offer);
}

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
  const given = textsOf(form, option);
  const tabs = setUpTabs(panel, show);
  const target = () => (guarantee.hidden || slider.valueAsNumber >= targets.length ? null : targets[slider.valueAsNumber]);

  function showTarget() {
    const chosen = target();
    sliderValue.textContent = chosen
      ? `at most ${percent(chosen.target_error)}: ${percent(chosen.answered, 0)} of texts get a label`
      : "any: every text gets a label";
  }

  // The slider is shown once its values are known: what was chosen before would be undone by them.
  async function loadGuarantees() {
    targets = [];
    guarantee.hidden = true;
    if (!option()?.dataset.guarantees) return;
    targets = (await (await get(`/api/guarantees?model=${encodeURIComponent(select.value)}`)).json()).guarantees;
    guarantee.hidden = !targets.length;
    slider.max = targets.length;
    slider.value = targets.length;
    showTarget();
  }

  function drawMore(count = SHOWN) {
    const until = Math.min(results.length, drawn + count);
    list.append(...results.slice(drawn, until).map((one) => item(one, option())));
    drawn = until;
    more.hidden = drawn >= results.length;
    more.textContent = `Show more (${(results.length - drawn).toLocaleString("en")} left)`;
  }

  // A tab's view of the rows; under Why? and Alike the first row is open.
  function show(tab, opens) {
    list.dataset.tab = tab;
    if (opens) list.querySelector(`li:first-child button.in-${tab}:enabled`)?.click();
  }

  function offer() {
    const { explains, nearest } = option().dataset;
    tabs.fit({ why: explains, alike: nearest === "yes" });
  }

  // What there is, be it all or what came before a stop or an error.
  function finish(wanted) {
    if (!results.length) return;
    if (drawn < results.length) drawMore(0);
    save.hidden = false;
    save.textContent = results.length < wanted ? `Save the ${results.length.toLocaleString("en")} done as CSV` : "Save as CSV";
    summary.textContent = summaryOf(results);
    summary.hidden = results.length < 2;
  }

  async function classify(signal, say) {
    const texts = given.read();
    results = [];
    drawn = 0;
    list.replaceChildren();
    for (const element of [more, save, summary, guaranteed]) element.hidden = true;
    const chosen = target();
    const progress = (done) => say(`${done.toLocaleString("en")} of ${texts.length.toLocaleString("en")}`);
    progress(0);
    const settings = chosen ? { top: 10, target_error: chosen.target_error } : { top: 10 };
    try {
      await predict(select.value, texts.map((one) => one.input), settings, signal, (answer) => {
        results.push(...answer.predictions.map((one, i) => ({ ...texts[results.length + i], unread: answer.unread[i], ...one })));
        if (answer.guarantee) guaranteed.textContent = answer.guarantee;
        guaranteed.hidden = !answer.guarantee;
        if (drawn < SHOWN) {
          drawMore();
          show(list.dataset.tab, true);
        }
        progress(results.length);
      });
      say(`${results.length.toLocaleString("en")} done`);
    } finally {
      finish(texts.length);
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(panel, classify);
  });
  list.addEventListener("click", ({ target }) => {
    if (form.dataset.tab !== "classify" || !target.dataset.tab) return;
    tabs.choose(target.dataset.tab);
    target.closest("li").scrollIntoView({ block: "nearest" });
  });
  select.addEventListener("change", () => {
    given.fit();
    offer();
    run(panel, loadGuarantees);
  });
  slider.addEventListener("input", showTarget);
  more.addEventListener("click", () => drawMore());
  save.addEventListener("click", () => download(results));
  offer();
  if (option()?.dataset.guarantees) run(panel, loadGuarantees);
}

function nameOf(one) {
  if (one.abstained) return "I don’t know";
  if ("label" in one) return one.label;
  if ("labels" in one) return one.labels.join(", ") || "none of them";
  if ("number" in one) return String(one.number);
  if ("tags" in one) return one.words.map((word, i) => `${word}/${one.tags[i] ?? "?"}`).join(" ");
  return one.alternative ?? one.answer ?? "";
}

function item(one, option) {
  const text = make("p", { className: "text", dir: "auto", textContent: beginning(one.text) });
  const bars = make("div", { className: "bars" });
  if (one.abstained) {
    bars.append(make("strong", { textContent: nameOf(one) }), make("span", { className: "number", textContent: "" }), make("span"));
  }
  const pairs = ranked(one);
  for (const [label, probability] of pairs.slice(0, 5)) {
    bars.append(make("span", { textContent: label }), make("span", { className: "number", textContent: percent(probability) }), bar(probability));
  }
  if (!pairs.length) bars.append(make("strong", { textContent: nameOf(one) }), make("span"), make("span"));
  const found = make("li", {}, text, bars);
  if (one.unknown) {
    found.append(make("p", { className: "quiet", textContent: "Unlike the texts that the model learned from: check it." }));
  }
  if (one.unread) {
    const unit = option.dataset.task === "tagging" ? "word" : "token";
    const words = `Too long for the model: ${one.unread.toLocaleString("en")} ${unit}${one.unread === 1 ? " is" : "s are"} not read.`;
    found.append(make("p", { className: "quiet", textContent: words }));
  }
  const actions = make("div", { className: "actions" });
  if (option.dataset.explains && pairs.length) actions.append(action("Why?", "why", (why) => explain(why, text, one, option.value)));
  if (option.dataset.nearest === "yes") {
    actions.append(action("Similar training texts", "alike", (button) => showNearest(button, found, one, option)));
  }
  if (actions.childElementCount) found.append(actions);
  found.append(...offers.map((offer) => offer(one, option)).filter(Boolean));
  return found;
}

// Labels with their probabilities, the most probable first: an object puts labels that are numbers into another order.
function ranked(one) {
  return Array.isArray(one.probabilities) ? [] : Object.entries(one.probabilities ?? {}).sort((a, b) => b[1] - a[1]);
}

function action(words, tab, act) {
  const button = make("button", { type: "button", className: `small in-${tab}`, textContent: words });
  button.dataset.tab = tab;
  button.addEventListener("click", () => act(button));
  return button;
}

// Fetches something for a prediction, with a note that says what happens; then the button has done its duty.
async function fetched(button, words, task) {
  const note = make("p", { className: `quiet in-${button.dataset.tab}`, role: "status", textContent: words });
  button.disabled = true;
  button.closest("li").querySelector(".error")?.remove();
  button.closest("li").append(note);
  try {
    await task(note);
    button.remove();
  } catch (problem) {
    note.textContent = problem.message;
    note.classList.replace("quiet", "error");
    button.disabled = false;
  }
}

async function explain(button, text, one, model) {
  await fetched(button, "reading it without each word …", async (note) => {
    const target = ranked(one)[0][0];
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
      span.style.setProperty("--strength", (0.45 * Math.abs(values[i]) / most).toFixed(2));
      heat.append(span, " ");
    });
    text.replaceChildren(heat);
    note.textContent =
      `Blue words speak for “${found.target}”, orange ones against it, by what it loses without them.` + faithfulnessOf(found);
  });
}

// How much better this order of words is than chance; a page without a server does not compute it.
function faithfulnessOf(found) {
  if (!found.faithfulness?.erasure) return "";
  const random = found.faithfulness_of_random_orders.toFixed(2);
  return ` Faithfulness of this order of words: ${found.faithfulness.erasure.toFixed(2)}, of random orders ${random} (1 is best).`;
}

function showNearest(button, item, one, option) {
  return fetched(button, "comparing it with the training texts …", async (note) => {
    const body = { model: option.value, inputs: [one.input] };
    const answer = await (await postWhenReady("/api/nearest", body, (words) => (note.textContent = words))).json();
    const table = make("table", { className: "nearest" });
    table.append(
      make("caption", { textContent: `Training texts with the highest cosine; that of random pairs is ${answer.random_pairs.toFixed(2)} on average.` }),
      make("thead", {}, make(
        "tr", {}, make("th", { scope: "col", textContent: "Text" }), make("th", { scope: "col", textContent: "Label" }),
        make("th", { scope: "col", className: "number", textContent: "Cosine" }),
      )),
      make("tbody", {}, ...answer.nearest[0].map(nearestRow)),
    );
    note.remove();
    const region = make("div", { className: "scroll in-alike", tabIndex: 0, role: "region", ariaLabel: "Similar training texts" }, table);
    item.append(region);
    if (document.activeElement === document.body) region.focus({ preventScroll: true }); // where the button was
  });
}

function nearestRow({ text, label, cosine }) {
  return make(
    "tr", {},
    make("td", { className: "text", dir: "auto", textContent: beginning([].concat(text).join(" | ")) }),
    make("td", { textContent: [].concat(label).join(", ") || "none of them" }),
    make("td", { className: "number", textContent: cosine.toFixed(3) }),
  );
}

function summaryOf(results) {
  const counts = new Map();
  for (const one of results) counts.set(nameOf(one), (counts.get(nameOf(one)) ?? 0) + 1);
  const order = [...counts].sort((a, b) => b[1] - a[1]);
  const parts = order.slice(0, 8).map(([name, count]) => `${name}: ${count.toLocaleString("en")}`);
  const unknown = results.filter((one) => one.unknown).length;
  if (order.length > 8) parts.push(`${order.length - 8} more`);
  if (unknown) parts.push(`like those of none of the labels: ${unknown.toLocaleString("en")}`);
  return parts.join(" · ");
}

function download(results) {
  const cell = (value) => `"${String(value ?? "").replaceAll('"', '""').replace(/^([=+\-@\t\r])/, "'$1")}"`;
  const lines = results.map((one) => [one.text, nameOf(one), one.confidence ?? ""].map(cell).join(","));
  const link = make("a", { download: "predictions.csv" });
  link.href = URL.createObjectURL(new Blob([["text,prediction,confidence", ...lines].join("\n")], { type: "text/csv" }));
  link.click();
  URL.revokeObjectURL(link.href);
}
