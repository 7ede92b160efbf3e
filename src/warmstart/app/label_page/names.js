// The dialog in which labels are added, renamed and merged, with the history of that.

import { get, post } from "./api.js";
import { count, make } from "./elements.js";

// person() says who changes something; changed(labels) is told what stands then.
export function setUpNames(person, changed) {
  const dialog = document.getElementById("names");
  const [error, status] = [dialog.querySelector(".error"), dialog.querySelector("[role=status]")];
  const added = document.getElementById("names-new");

  function show(labels) {
    const standing = labels.filter((one) => !isOutside(one));
    document.getElementById("names-rows").replaceChildren(...standing.map((one) => row(one, standing, change)));
    changed(labels);
  }

  async function change(body, words) {
    error.hidden = true;
    try {
      const answer = await (await post("/api/labels", { person: person(), ...body })).json();
      status.textContent = words;
      show(answer.labels);
      await showHistory();
      return true;
    } catch (problem) {
      error.textContent = problem.status === undefined ? "the server does not answer" : problem.message;
      error.hidden = false;
      return false;
    }
  }

  document.getElementById("names-open").addEventListener("click", async () => {
    error.hidden = true;
    status.textContent = "";
    dialog.showModal();
    try {
      show((await (await get("/api/labels")).json()).labels);
      await showHistory();
    } catch {
      error.textContent = "the server does not answer";
      error.hidden = false;
    }
  });
  document.getElementById("names-add").addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = added.value;
    if (await change({ action: "add", name }, `“${name}” is added.`)) added.value = "";
  });
}

// The label of words outside of every span: it always stands, and cannot be changed.
function isOutside(label) {
  return document.body.dataset.type === "tagging" && label.id === 0;
}

function row(label, labels, change) {
  const name = make("input", { value: label.name, dir: "auto", ariaLabel: `Name of ${label.name}`, maxLength: 1000 });
  const rename = make("button", { type: "submit", className: "small", textContent: "Rename", ariaLabel: `Rename ${label.name}` });
  const renaming = make("form", { className: "row" }, name, rename);
  renaming.addEventListener("submit", (event) => {
    event.preventDefault();
    change({ action: "rename", label: label.id, name: name.value }, `“${label.name}” is now “${name.value}”.`);
  });
  const others = labels.filter((one) => one.id !== label.id);
  const into = make("select", { ariaLabel: `Merge ${label.name} into` }, make("option", { value: "", textContent: "into …" }),
    ...others.map((one) => make("option", { value: one.id, textContent: one.name })));
  const merge = make("button", { type: "button", className: "small", textContent: "Merge", ariaLabel: `Merge ${label.name}`, disabled: true });
  const chosen = () => others.find((one) => String(one.id) === into.value);
  let asked = false;
  const ask = (again) => {
    asked = again;
    merge.textContent = again ? `Merge “${label.name}” (${count(label.count, "text")}) into “${chosen().name}”, for good?` : "Merge";
    merge.ariaLabel = again ? `${merge.textContent} It cannot be undone` : `Merge ${label.name}`;
  };
  into.addEventListener("change", () => {
    merge.disabled = !into.value;
    ask(false);
  });
  merge.addEventListener("click", () => {
    if (!asked) ask(true);
    else change({ action: "merge", label: label.id, into: chosen().id }, `“${label.name}” is now part of “${chosen().name}”.`);
  });
  return make(
    "tr", {}, make("td", {}, make("kbd", { textContent: label.key || "–" })), make("td", {}, renaming),
    make("td", { className: "number", textContent: label.count.toLocaleString("en") }), make("td", {}, make("div", { className: "row" }, into, merge)),
  );
}

async function showHistory() {
  const { history } = await (await get("/api/history")).json();
  const items = history.map((one) => make("li", { dir: "auto", textContent: sentence(one) }));
  document.getElementById("names-history").replaceChildren(...(items.length ? items : [make("li", { textContent: "Nothing has been changed." })]));
}

function sentence({ at, person, words }) {
  const when = new Date(at).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
  return [when, person, words].filter(Boolean).join(": ");
}
