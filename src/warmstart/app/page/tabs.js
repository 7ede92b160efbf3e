// The results of a form as tabs: one that is chosen shows what there is, and asks for it where the form has changed since.

import { sendWhenFree, share } from "./forms.js";

// A tab is named by its id (tab-why), the chosen one also by the form's dataset. show(name, opens): shows it, and opens its first row.
export function setUpTabs(panel, show) {
  const form = panel.querySelector("form");
  const list = panel.querySelector("[role=tablist]");
  const tabs = [...list.children];
  let answered = false; // the rows show what the form holds
  const nameOf = (tab) => tab.id.slice("tab-".length);
  const rows = panel.querySelector("[role=tabpanel]");
  const chosen = () => tabs.find((one) => nameOf(one) === form.dataset.tab);

  function choose(name, opens) {
    form.dataset.tab = tabs.some((one) => nameOf(one) === name && !one.hidden) ? name : nameOf(tabs[0]);
    for (const one of tabs) {
      one.setAttribute("aria-selected", one === chosen());
      one.tabIndex = one === chosen() ? 0 : -1;
    }
    rows.setAttribute("aria-labelledby", chosen().id);
    show(form.dataset.tab, opens);
  }

  // able: of some tabs, whether the chosen model has what they show
  function fit(able) {
    for (const one of tabs) one.hidden = !(able[nameOf(one)] ?? true);
    list.hidden = tabs.filter((one) => !one.hidden).length < 2;
    choose(form.dataset.tab);
  }

  for (const one of tabs) {
    one.addEventListener("show", () => choose(nameOf(one)));
    one.addEventListener("click", () => {
      choose(nameOf(one), answered);
      if (!answered && form.checkValidity()) sendWhenFree(form);
      else share(form);
    });
  }
  list.addEventListener("keydown", (event) => {
    const able = tabs.filter((one) => !one.hidden);
    const at = able.indexOf(event.target);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    able.at(to % able.length).focus();
  });
  form.addEventListener("submit", () => (answered = true));
  for (const changed of ["input", "change"]) panel.addEventListener(changed, () => (answered = false));
  return { choose, fit };
}
