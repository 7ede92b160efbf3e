// Write: text as it is generated, what else was probable at every token, and another way from there.

import { stream } from "./api.js";
import { bar, make, percent, run } from "./elements.js";

// A token of white space alone would look like an empty cell.
const SIGNS = { " ": "␣", "\n": "↵", "\t": "⇥" };
const marked = (token) => (token.trim() ? token : token.replace(/[ \n\t]/g, (one) => SIGNS[one]));

export function setUp(panel) {
  const form = panel.querySelector("form");
  const fields = form.elements;
  const written = panel.querySelector("#write-text");
  const hint = panel.querySelector("#write-hint");
  const table = panel.querySelector("#write-step");
  const followed = panel.querySelector("#write-corpus");
  let steps = [];
  let began = "";

  function write(prompt) {
    run(panel, async (signal, say) => {
      steps = [];
      began = prompt;
      table.hidden = hint.hidden = true;
      written.replaceChildren(make("span", { textContent: prompt }));
      const temperature = fields.temperature.valueAsNumber;
      const body = {
        model: fields.model.value, prompt, stream: true, max_new_tokens: fields.tokens.valueAsNumber, seed: fields.seed.valueAsNumber,
        ...(temperature > 0 ? { temperature } : { greedy: true }),
      };
      let failed = null;
      await stream("/api/generate", body, signal, (kind, value) => {
        if (kind === "token") add(value);
        else if (kind === "error") failed = value.error;
        else say(`${steps.length} tokens${value.ended ? ", ended by itself" : ""}`);
        if (kind === "token") say(`${steps.length} tokens`);
      });
      if (failed) throw new Error(failed);
    }).finally(() => (hint.hidden = !steps.length));
  }

  function add(step) {
    const number = steps.length;
    steps.push(step);
    const button = make("button", { type: "button", textContent: step.text || "·", ariaPressed: "false" });
    button.title = `${step.token}: ${percent(step.probability)}`;
    button.style.setProperty("--strength", (0.15 + 0.85 * step.probability).toFixed(2));
    button.addEventListener("click", () => show(number, button));
    written.append(button);
  }

  function show(number, button) {
    for (const other of written.querySelectorAll("button")) other.ariaPressed = String(other === button);
    const step = steps[number];
    const before = began + steps.slice(0, number).map((one) => one.text).join("");
    table.querySelector("caption").textContent =
      `Token ${number + 1}: ${JSON.stringify(step.token)} had ${percent(step.probability, 2)}; entropy ${step.entropy.toFixed(2)} nats.`;
    table.querySelector("tbody").replaceChildren(...step.candidates.map((one, rank) => row(one, step, before, rank)));
    table.querySelector("th.corpus").hidden = step.corpus === null;
    followed.hidden = step.corpus === null;
    if (step.corpus) followed.textContent = sentence(step.corpus);
    table.hidden = false;
  }

  function sentence(corpus) {
    const after = corpus.context.length ? `After ${corpus.context.map((token) => `“${marked(token)}”`).join(" ")}` : "Anywhere";
    const found = corpus.followed.map((one) => `“${marked(one.token)}” ${one.count.toLocaleString("en")}`).join(", ");
    return `${after} the corpus has ${corpus.count.toLocaleString("en")} tokens: ${found}. The model is ${corpus.kl_divergence.toFixed(2)} nats away.`;
  }

  function row(one, step, before, rank) {
    const taken = one.token === step.token;
    const branch = make("button", { type: "button", className: "small", textContent: taken ? "taken" : "go on" });
    branch.disabled = taken || /\\x|^\[.*\]$/.test(one.token); // half a character, or the end of the text
    branch.setAttribute("aria-label", taken ? `${one.token}: taken` : `go on with ${one.token}`);
    branch.addEventListener("click", () => write(before + one.token));
    return make(
      "tr", {},
      make("td", { className: "token", textContent: marked(one.token) }),
      make("td", { className: "number", textContent: percent(one.probability, 2) }),
      ...(step.corpus ? [make("td", { className: "number", textContent: percent(step.corpus.candidates[rank] / step.corpus.count, 2) })] : []),
      make("td", {}, bar(one.probability)),
      make("td", {}, branch),
    );
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    write(fields.prompt.value);
  });
}
