// Look: how much each token attends to each, by layer and head.

import { post } from "./api.js";
import { make, run } from "./elements.js";

export function setUp(panel) {
  const form = panel.querySelector("form");
  const choice = panel.querySelector("#look-choice");
  const [layer, head] = ["#look-layer", "#look-head"].map((one) => panel.querySelector(one));
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
  for (const select of [layer, head]) select.addEventListener("change", draw);
}
