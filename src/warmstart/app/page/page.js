// Sets up the panels that the server put into the page.

import { nameCells } from "./cards.js";
import { setUp as classify } from "./classify.js";
import { setUp as checks } from "./checks.js";
import { setUp as write } from "./write.js";
import { setUpForms } from "./forms.js";

for (const [name, setUp] of Object.entries({ classify, write, checks })) {
  const panel = document.getElementById(name);
  if (panel) setUp(panel);
}
for (const table of document.querySelectorAll("table.cards")) nameCells(table);
setUpForms();
