// Look: how much each token attends to each, by layer and head, and what a linear probe on each layer makes of the text.

import { post, postWhenReady } from "./api.js";
import { bar, inputOf, make, percent, run } from "./elements.js";

export function setUp(panel) {
  const form = panel.querySelector("form");
  const choice = panel.querySelector("#look-choice");
  const [layer, head] = ["#look-layer", "#look-head"].map((one) => panel.querySelector(one));
  const probing = panel.querySelector("#look-probe");
  const probes = panel.querySelector("#look-probes");
  const region = panel.querySelector("#look-weights");
  let found = null;

  function options(select, count, what) {
    select.replaceChildren(...Array.from({ length: count }, (_, i) => make("option", { value: i, textContent: `${i + 1}` })));
    select.append(make("option", { value: -1, textContent: `mean of all ${what}`, selected: true }));
  }

  // The chosen weights, or the mean over all layers or heads.
  function chosen() {
    const layers = layer.value < 0 ? found.weights : [found.weights[layer.value]];
    const maps = layers.flatMap((heads) => (head.value < 0 ? heads : [heads[head.value]]));
    return found.tokens.map((_, i) => found.tokens.map((_, j) => maps.reduce((sum, map) => sum + map[i][j], 0) / maps.length));
  }

  function draw() {
    const weights = chosen();
    region.querySelector("caption").textContent = "Each row is a token; the darker a cell, the more it attends to the token of the column.";
    region.querySelector("thead").replaceChildren(
      make("tr", {}, make("td"), ...found.tokens.map((token) => make("th", { scope: "col" }, make("span", { textContent: token })))),
    );
    region.querySelector("tbody").replaceChildren(...weights.map((row, i) => make(
      "tr", {}, make("th", { scope: "row", textContent: found.tokens[i] }), ...row.map((weight, j) => cell(weight, i, j)),
    )));
    region.hidden = false;
  }

  function cell(weight, i, j) {
    const element = make("td", { title: `${found.tokens[i]} → ${found.tokens[j]}: ${weight.toFixed(3)}` });
    element.append(make("span", { className: "hidden", textContent: weight.toFixed(2) }));
    element.style.setProperty("--strength", weight.toFixed(3));
    return element;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(panel, async (signal, say) => {
      say("reading …");
      found = await (await post("/api/attention", { model: form.elements.model.value, text: form.elements.text.value })).json();
      options(layer, found.weights.length, "layers");
      options(head, found.weights[0].length, "heads");
      choice.hidden = false;
      draw();
      say(`${found.tokens.length} tokens`);
    });
  });
  // The button, or how to get it, as the chosen model allows.
  function offer() {
    const able = form.elements.model.selectedOptions[0].dataset.probe;
    probing.hidden = able !== "yes";
    panel.querySelector("#look-hint").hidden = able !== "lacks";
    probes.hidden = true;
  }

  probing.addEventListener("click", () => {
    if (!form.reportValidity()) return;
    run(panel, async (signal, say) => {
      say("fitting probes …");
      const option = form.elements.model.selectedOptions[0];
      const body = { model: option.value, inputs: [inputOf(form.elements.text.value, option)] };
      const answer = await (await postWhenReady("/api/probe", body, say)).json();
      panel.querySelector("#look-probes-about").textContent = aboutProbes(answer);
      probes.querySelector("tbody").replaceChildren(...answer.layers.map((one, i) => probeRow(one, answer.probes[0][i])));
      probes.hidden = false;
      say("");
    });
  });

  form.elements.model.addEventListener("change", offer);
  offer();
  for (const select of [layer, head]) select.addEventListener("change", draw);
}

function aboutProbes(answer) {
  const number = (count) => count.toLocaleString("en");
  const spared = answer.held_out_of === "training" ? " The task has few validation texts, so these are training texts: if the model has learned them, its last layers know their labels." : "";
  return (
    `A linear probe on the pooled state of each layer, fitted on ${number(answer.train)} training texts, and how many of ${number(answer.held_out)} others it labels rightly, with 95% intervals. ` +
    `Always ${answer.majority.label}, the most frequent label: ${percent(answer.majority.accuracy)}.${spared}${answer.cut ? ` ${answer.cut}` : ""}`
  );
}

function probeRow(layer, found) {
  const cell = (text, className = "") => make("td", { className, textContent: text });
  const range = `${(100 * layer.low).toFixed(1)} to ${(100 * layer.high).toFixed(1)}${layer.converged ? "" : " (the fit did not converge)"}`;
  return make(
    "tr", {},
    make("th", { scope: "row", textContent: layer.layer === "embedding" ? "embedding" : `block ${layer.layer}` }),
    cell(found.label), cell(percent(found.probability), "number"), make("td", { className: "drawn" }, bar(found.probability)),
    cell(percent(layer.accuracy), "number"), cell(range, "range"),
  );
}
