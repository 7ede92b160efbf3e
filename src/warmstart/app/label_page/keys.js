// Single keys, unless the person writes somewhere, a dialog is open, or they are switched off.

import { make } from "./elements.js";

const STORED = "warmstart-single-keys";
const FIELDS = "input, textarea, select";

// act(key, event) says whether the key meant something.
export function setUpKeys(act) {
  const on = document.getElementById("keys-on");
  on.checked = localStorage.getItem(STORED) !== "off";
  on.addEventListener("change", () => localStorage.setItem(STORED, on.checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    if (!on.checked && event.key.length === 1 && event.key !== " ") return;
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest?.(FIELDS) || document.querySelector("dialog[open]")) return;
    if (event.key === "Enter" && event.target.closest?.("a, button, summary")) return;
    if (act(event.key, event)) event.preventDefault();
  });
}

export function showKeys(labels, tagging) {
  const rows = [
    ...labels.filter((one) => one.key && !(tagging && one.id === 0)).map((one) => [one.key, one.name]),
    ...(tagging
      ? [["← →", "the word before or after"], ["Shift + ← →", "choose several words"], ["0", "no label"], ["Enter", "save the tags"]]
      : [["Enter", "accept the likely label, where one is shown"]]),
    ["u", "undo your last answer"], ["s", "skip this text"], ["c", "comment; Esc or Enter leaves it"],
    ...(labels.length > 9 ? [["/", "find a label by its name; Enter takes the first"]] : []),
    ["?", "these keys"],
  ];
  document.getElementById("keys-rows").replaceChildren(...rows.map(([key, words]) => make(
    "tr", {}, make("th", { scope: "row" }, make("kbd", { textContent: key })), make("td", { dir: "auto", textContent: words }),
  )));
  document.getElementById("keys").showModal();
}
