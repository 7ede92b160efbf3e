// Map: the words of a text as points, those near each other that are alike to the model.

import { post } from "./api.js";
import { draw, make, percent, run } from "./elements.js";

const MARGIN = 6; // percent of the drawing, on each side

export function setUp(panel) {
  const form = panel.querySelector("form");
  const { model, layer } = form.elements;
  const figure = panel.querySelector("figure");
  const drawing = figure.querySelector("svg");
  const table = panel.querySelector("#map-table");

  function showLayers() {
    const depth = Number(model.selectedOptions[0].dataset.depth);
    layer.replaceChildren(
      make("option", { value: "", textContent: "the embedding, without context" }),
      ...Array.from({ length: depth + 1 }, (_, i) => make("option", { value: i, textContent: i ? `context, layer ${i}` : "context, before layer 1" })),
    );
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(panel, async (signal, say) => {
      say("reading …");
      const body = { model: model.value, text: form.elements.text.value, ...(layer.value ? { layer: Number(layer.value) } : {}) };
      const found = await (await post("/api/map", body)).json();
      const shares = found.explained_variance;
      figure.querySelector("figcaption").textContent =
        `The axes hold ${percent(shares[0], 0)} and ${percent(shares[1], 0)} of the variance. The nearest word of each in all dimensions is in ` +
        `the table; random pairs of these words have a cosine of ${found.random_pairs.toFixed(2)} on average. Words without room for their name are dots.`;
      figure.hidden = table.hidden = false;
      drawing.replaceChildren(...drawn(found.words));
      labelWhereFree(drawing);
      table.querySelector("tbody").replaceChildren(...found.words.map(row));
      say(`${found.words.length} words`);
    });
  });
  model.addEventListener("change", showLayers);
  new ResizeObserver(() => labelWhereFree(drawing)).observe(drawing);
  showLayers();
}

// A dot and a label for each word. Places are percentages, so that the map fits any width and its labels keep their size.
function drawn(words) {
  const place = (values) => {
    const [least, most] = [Math.min(...values), Math.max(...values)];
    return values.map((value) => MARGIN + ((100 - 2 * MARGIN) * (value - least)) / (most - least || 1));
  };
  const across = place(words.map((one) => one.x));
  const down = place(words.map((one) => -one.y));
  const dots = words.map((one, i) => {
    const title = draw("title", {}, `${one.word}; nearest: ${one.nearest}, cosine ${one.cosine.toFixed(2)}`);
    return draw("circle", { cx: `${across[i]}%`, cy: `${down[i]}%`, r: 3.5 }, title);
  });
  const labels = words.map((one, i) => {
    const right = across[i] > 60; // its label goes to the left
    return draw("text", { x: `${across[i]}%`, y: `${down[i]}%`, dx: right ? -7 : 7, class: right ? "left" : "" }, one.word);
  });
  return [...dots, ...labels];
}

// Labels that would lie on another one are left out, those of less frequent words first; the words come in that order.
function labelWhereFree(drawing) {
  const taken = [];
  for (const label of drawing.querySelectorAll("text")) {
    label.removeAttribute("visibility");
    const box = label.getBBox();
    const free = taken.every((other) =>
      box.x > other.x + other.width || other.x > box.x + box.width || box.y > other.y + other.height || other.y > box.y + box.height);
    if (free) taken.push(box);
    else label.setAttribute("visibility", "hidden");
  }
}

function row(one) {
  return make(
    "tr", {},
    make("th", { scope: "row", dir: "auto", textContent: one.word }),
    make("td", { className: "number", textContent: one.count.toLocaleString("en") }),
    make("td", { dir: "auto", textContent: one.nearest }),
    make("td", { className: "number", textContent: one.cosine.toFixed(3) }),
    make("td", { className: "number", textContent: one.x.toFixed(2) }),
    make("td", { className: "number", textContent: one.y.toFixed(2) }),
  );
}
