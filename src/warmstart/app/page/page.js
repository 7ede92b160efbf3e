// Sets up the panels that are in the page.

import { setUp as classify } from "./classify.js";
import { setUp as checks } from "./checks.js";
import { setUp as write } from "./write.js";
import { setUpForms } from "./forms.js";

// On a phone, each row of a table with the class "cards" is a card; each of its cells then shows what its column holds.
function nameCells(table) {
  const name = () => {
    const columns = [...table.querySelectorAll("thead th")].map((one) => (one.querySelector(".hidden") ? "" : one.textContent));
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, i) => {
        if (cell.dataset.column !== columns[i]) cell.dataset.column = columns[i];
      });
    }
  };
  new MutationObserver(name).observe(table, { childList: true, subtree: true });
}

for (const [name, setUp] of Object.entries({ classify, write, checks })) {
  const panel = document.getElementById(name);
  if (panel) setUp(panel);
}
for (const table of document.querySelectorAll("table.cards")) nameCells(table);
setUpForms();
