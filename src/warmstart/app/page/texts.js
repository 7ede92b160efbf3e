// The texts of a form: those of its box, a text per line or all of it as one, or a column of a table, which is read in the browser.

import { rowsOfWorkbook } from "./api.js";
import { inputOf, linesOf, make, run } from "./elements.js";

const NAMES = ["text", "sentence", "content", "message", "body", "comment", "review", "question"]; // of columns with texts
const LONGEST_MAIL = 20_000; // characters
const SAMPLE = 100; // rows in which the column with the longest texts is looked for

// Cells of a table whose first row names its columns; they may be quoted, and hold line ends.
export function rowsOf(text) {
  const header = text.split("\n", 1)[0];
  const [between] = [",", ";", "\t"].sort((a, b) => header.split(b).length - header.split(a).length);
  const cell = new RegExp(`(?:"([^"]*(?:""[^"]*)*)"|([^${between}\\r\\n]*))(${between}|\\r?\\n|\\r|$)`, "gy");
  const rows = [[]];
  for (const [, quoted, plain, end] of text.matchAll(cell)) {
    rows.at(-1).push(quoted?.replaceAll('""', '"') ?? plain);
    if (end === "") break;
    if (end !== between) rows.push([]);
  }
  return rows.filter((row) => row.some((one) => one.trim()));
}

// Bytes that are zero stand in text only where every other one is: in UTF-16, which says so at its beginning.
function isText(bytes) {
  return (bytes[0] === 0xff && bytes[1] === 0xfe) || !bytes.includes(0);
}

// {read: () => [{text, input}], fit: after another model was chosen, put: (text) => into the box}
export function textsOf(form, option) {
  const { texts: area, kind, file, column } = form.elements;
  const [columns, remove] = [".column", ".remove"].map((one) => form.querySelector(one));
  let table = null;
  let chosen = false; // somebody said what the box holds

  function fit() {
    const { parted } = option().dataset;
    for (const one of kind.options) one.disabled = one.hidden = one.value === "pairs" ? !parted : parted === "yes";
    if (kind.selectedOptions[0].disabled) kind.value = parted === "yes" ? "pairs" : "lines";
  }

  // A mail has empty lines between its paragraphs; a list has none, or is long.
  function put(text) {
    area.value = text;
    if (chosen || kind.value === "pairs" || kind.options[1].disabled) return;
    kind.value = text.length <= LONGEST_MAIL && /\n[^\S\n]*\n/.test(text.trim()) ? "whole" : "lines";
  }

  function show(rows, name = "") {
    table = rows;
    if (!rows) file.value = "";
    for (const one of [columns, remove]) one.hidden = !rows;
    area.disabled = kind.disabled = Boolean(rows);
    area.placeholder = rows ? `${(rows.length - 1).toLocaleString("en")} rows of ${name}` : "";
    if (!rows) return;
    const length = (i) => rows.slice(1, SAMPLE).reduce((sum, row) => sum + (row[i] ?? "").length, 0);
    const order = rows[0].map((_, i) => i).sort((a, b) => length(b) - length(a));
    const named = rows[0].findIndex((one) => NAMES.includes(one.trim().toLowerCase()));
    column.replaceChildren(...rows[0].map((one, i) => make("option", { value: i, textContent: one.trim() || `column ${i + 1}` })));
    column.value = named < 0 ? order[0] : named;
  }

  async function open(chosen) {
    const bytes = await chosen.arrayBuffer();
    if (/\.xls[xm]$/i.test(chosen.name)) return show(await rowsOfWorkbook(chosen.name, bytes), chosen.name);
    if (!isText(new Uint8Array(bytes))) throw new Error(`the file must hold text, but ${chosen.name} does not; save it as csv, and choose that`);
    const [first, second] = new Uint8Array(bytes);
    let text;
    try {
      text = new TextDecoder(first === 0xff && second === 0xfe ? "utf-16le" : "utf-8", { fatal: true }).decode(bytes);
    } catch {
      text = new TextDecoder("windows-1252").decode(bytes);
    }
    if (/\.(csv|tsv)$/i.test(chosen.name)) return show(rowsOf(text), chosen.name);
    show(null);
    put(text);
  }

  function read() {
    const parted = table ? undefined : kind.value === "pairs";
    const cells = table?.slice(1).map((row) => row[column.value] ?? "").filter((text) => text.trim());
    if (cells && !cells.length) throw new Error("this column of the file has no texts; choose another");
    const texts = cells ?? (kind.value === "whole" && area.value.trim() ? [area.value.trim()] : linesOf(area));
    return texts.map((text) => ({ text, input: inputOf(text, option(), parted) }));
  }

  area.addEventListener("input", (event) => event.inputType === "insertFromPaste" && put(area.value));
  kind.addEventListener("change", () => (chosen = true));
  file.addEventListener("change", () => run(form.closest("section"), async () => {
    try {
      if (file.files.length) await open(file.files[0]);
    } catch (problem) {
      show(null);
      throw problem;
    }
  }));
  remove.addEventListener("click", () => show(null));
  fit();
  return { read, fit, put };
}
