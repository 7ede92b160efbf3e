// On a phone, each row of a table with the class "cards" is a card; each of its cells then shows what its column holds.

export function nameCells(table) {
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
