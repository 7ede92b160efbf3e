// Trust: the doctor's checks of a model, and its card.

import { get } from "./api.js";
import { make, run } from "./elements.js";

export function setUp(panel) {
  const form = panel.querySelector("form");
  const checks = panel.querySelector("#trust-checks");
  const card = panel.querySelector("#trust-card");

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(panel, async (signal, say) => {
      const name = encodeURIComponent(form.elements.model.value);
      say("examining …");
      const [found, words] = await Promise.all([
        get(`/api/checks?model=${name}`).then((answer) => answer.json()),
        get(`/api/card?model=${name}`).then((answer) => answer.text()),
      ]);
      const applied = found.checks.filter((one) => one.status !== "not applicable");
      const failed = applied.filter((one) => one.status === "fail").length;
      checks.querySelector("caption").textContent = failed
        ? `${failed} of ${applied.length} checks fail.`
        : `It passes ${applied.length} checks; ${found.checks.length - applied.length} do not apply to it.`;
      checks.querySelector("tbody").replaceChildren(...applied.map(row));
      checks.hidden = false;
      card.querySelector("pre").textContent = words;
      card.hidden = false;
      say("");
    });
  });
}

function row(one) {
  const number = (value) => (value === null ? "" : Number.isInteger(value) ? String(value) : value.toPrecision(2));
  return make(
    "tr", {},
    make("th", { scope: "row", textContent: one.part ? `${one.part}: ${one.check}` : one.check }),
    make("td", { className: one.status, textContent: one.status }),
    make("td", { className: "number", textContent: number(one.value) }),
    make("td", { className: "number", textContent: number(one.limit) }),
    make("td", { textContent: one.status === "fail" ? `${one.note}. ${one.advice}` : one.promise }),
  );
}
