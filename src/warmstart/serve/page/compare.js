// Compare: what two models make of the same texts, those first on which they disagree.

import { predict } from "./api.js";
import { nameOf } from "./classify.js";
import { linesOf, make, percent, run } from "./elements.js";

const SHOWN = 200; // rows that are drawn

export function setUp(panel) {
  const form = panel.querySelector("form");
  const results = panel.querySelector("#compare-results");

  async function predictions(select, texts, signal) {
    const found = [];
    await predict(select.selectedOptions[0], texts, { top: 1 }, signal, (answer) => found.push(...answer.predictions));
    return found;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(panel, async (signal, say) => {
      const texts = linesOf(form.elements.texts);
      results.hidden = true;
      say("predicting …");
      const [one, other] = await Promise.all([
        predictions(form.elements.model, texts, signal), predictions(form.elements.other, texts, signal),
      ]);
      const rows = texts.map((text, i) => ({ text, one: one[i], other: other[i], equal: nameOf(one[i]) === nameOf(other[i]) }));
      const equal = rows.filter((row) => row.equal).length;
      const headers = results.querySelectorAll("th");
      headers[1].textContent = form.elements.model.value;
      headers[2].textContent = form.elements.other.value;
      results.querySelector("caption").textContent = `They agree on ${equal} of ${rows.length} (${percent(equal / rows.length, 0)}).`;
      rows.sort((a, b) => a.equal - b.equal);
      results.querySelector("tbody").replaceChildren(...rows.slice(0, SHOWN).map(drawn));
      results.hidden = false;
      say(rows.length > SHOWN ? `the first ${SHOWN} are shown` : "");
    });
  });
}

function drawn(row) {
  const cell = (one) => {
    const sure = one.confidence === undefined ? "" : ` (${percent(one.confidence, 0)})`;
    return make("td", { className: row.equal ? "" : "differs", textContent: nameOf(one) + sure });
  };
  return make("tr", {}, make("td", { className: "text", dir: "auto", textContent: row.text }), cell(row.one), cell(row.other));
}
