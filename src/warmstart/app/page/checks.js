// File checks: how often a model is right, the doctor's checks of its files, whether its confidence is calibrated, what the audit of its data found, and its card.

import { get } from "./api.js";
import { make, percent, run } from "./elements.js";

export function setUp(panel) {
  const form = panel.querySelector("form");
  const checks = panel.querySelector("#checks-files");
  const card = panel.querySelector("#checks-card");

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run(panel, async (signal, say) => {
      const name = encodeURIComponent(form.elements.model.value);
      say("examining …");
      const [found, words, evidence] = await Promise.all([
        get(`/api/checks?model=${name}`).then((answer) => answer.json()),
        get(`/api/card?model=${name}`).then((answer) => answer.text()),
        get(`/api/evidence?model=${name}`).then((answer) => answer.json()),
      ]);
      const applied = found.checks.filter((one) => one.status !== "not applicable");
      const failed = applied.filter((one) => one.status === "fail").length;
      checks.querySelector("caption").textContent = failed
        ? `${failed} of ${applied.length} checks fail.`
        : `It passes ${applied.length} checks; ${found.checks.length - applied.length} do not apply to it.`;
      checks.querySelector("tbody").replaceChildren(...applied.map(row));
      checks.hidden = false;
      panel.querySelector("#checks-accuracy").textContent = evidence.accuracy;
      showCalibration(panel.querySelector("#checks-calibration"), evidence.calibration);
      showAudit(panel.querySelector("#checks-audit"), evidence.audit);
      card.querySelector("pre").textContent = words;
      card.hidden = false;
      say("");
    });
  });
}

function showCalibration(part, found) {
  part.querySelector("p").textContent = found
    ? `Of ${found.texts.toLocaleString("en")} held-out texts, which chose nothing, ${percent(found.accuracy)} are right. Calibration error ` +
      `${percent(found.error)}, where chance alone gives a calibrated model ${percent(found.error_of_chance)}.`
    : "No texts were held out to compare its confidence with: `adapt --calibration-fraction 0.5` holds some out, a task of type answers always does.";
  part.hidden = false;
}

function showAudit(part, findings) {
  const about = { null: "The data that it learned from was not audited.", 0: "The audit of its data found nothing." };
  const none = about[findings === null ? "null" : findings.length];
  part.querySelector("p").textContent = none ?? "What the audit of the data that it learned from found:";
  part.querySelector("ul").replaceChildren(
    ...(findings ?? []).map((one) => make("li", {}, make("strong", { textContent: `${one.severity}: ` }), one.sentence)),
  );
  part.hidden = false;
}

function row(one) {
  const number = (value) => (value === null ? "" : Number.isInteger(value) ? String(value) : value.toPrecision(2));
  return make(
    "tr", {},
    make("th", { scope: "row", textContent: one.part ? `${one.part}: ${one.check}` : one.check }),
    make("td", { className: one.status, textContent: one.status }),
    make("td", { className: "number", textContent: number(one.value) }),
    make("td", { className: "number", textContent: number(one.limit) }),
    make("td", { className: "long", textContent: one.status === "fail" ? `${one.note}. ${one.advice}` : one.promise }),
  );
}
