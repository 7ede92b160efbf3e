// The list of what was labelled: searched and filtered on the server; another label is one more answer of this person.

import { get, post } from "./api.js";
import { count, make } from "./elements.js";

const COUNT = 10;
const PAUSE = 250; // milliseconds after a key

const part = (id) => document.getElementById(id);
const [section, form, rows, more] = ["answered", "answered-form", "answered-rows", "answered-more"].map(part);
const problem = section.querySelector(".error");
const option = (value, words) => make("option", { value, textContent: words, dir: "auto" });

export class Answered {
  // person() corrects; wordsOf(value) names a label; changed(last) is told after a correction what undo would take back.
  constructor(person, wordsOf, changed) {
    Object.assign(this, { person, wordsOf, changed, labels: [], seen: null });
    let timer = null;
    form.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.show(), PAUSE);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    more.addEventListener("click", () => this.show(rows.childElementCount));
  }

  setLabels(labels) {
    this.labels = labels;
    choices(form.elements.label, [option("", "any"), ...labels.map((one) => option(one.id, one.name))]);
    this.seen = null;
  }

  // Shows the list anew if there are other answers than before, unless somebody works in it.
  refresh({ people, labelled, skipped, disagreements, doubtful }) {
    choices(form.elements.person, [option("", "anybody"), ...people.map((one) => option(one.person, one.person))]);
    const seen = JSON.stringify([people.map((one) => one.answered), labelled, skipped, disagreements, doubtful]);
    const busy = () => rows.contains(document.activeElement) || rows.childElementCount > COUNT;
    if (seen === this.seen || busy()) return;
    this.seen = seen;
    this.show(0, busy);
  }

  // unless(): asked when the answer has come; what somebody has opened meanwhile stays, and the list is shown at a later time.
  async show(start = 0, unless = () => false) {
    const given = [...new FormData(form)].filter(([, value]) => value !== "");
    try {
      const found = await (await get(`/api/texts?${new URLSearchParams([...given, ["start", start], ["count", COUNT]])}`)).json();
      if (unless()) {
        this.seen = null;
        return;
      }
      const shown = found.texts.map((one) => this.row(one));
      if (start) rows.append(...shown);
      else rows.replaceChildren(...shown);
      part("answered-count").textContent = found.total ? `${count(found.total, "text")}.` : "No such text.";
      more.hidden = rows.childElementCount >= found.total;
      problem.hidden = true;
    } catch (error) {
      this.fail(error);
    }
  }

  fail(error) {
    problem.textContent = error.status === undefined ? "the server does not answer" : error.message;
    problem.hidden = false;
  }

  row(one) {
    const why = one.disputed ? "People differ; another one decides." : one.doubtful ? "Likely wrong." : "";
    const told = one.answers.map(({ person, value, at, comment }) => make("li", {
      dir: "auto", textContent: `${new Date(at).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })}, ${person}: ${this.wordsOf(value)}${comment ? ` (${comment})` : ""}`,
    }));
    const text = make("p", { className: "text", dir: "auto", textContent: one.cut ? `${one.text}…` : one.text });
    const history = make("details", {}, make("summary", { textContent: count(told.length, "answer") }), make("ul", { className: "findings" }, ...told));
    return make("li", {}, text, make("div", { className: "row" }, this.labelOf(one), make("span", { className: "quiet", textContent: why }), history));
  }

  // The label that counts, to be changed where a text has one.
  labelOf(one) {
    if (document.body.dataset.type === "tagging") return make("span", {});
    const select = make("select", { ariaLabel: "Label" }, option("", "no label"), ...this.labels.map((label) => option(label.id, label.name)));
    select.value = one.label ?? "";
    select.disabled = !this.person();
    select.addEventListener("change", async () => {
      select.disabled = true;
      try {
        const body = { person: this.person(), text: one.text_id, value: select.value === "" ? null : Number(select.value) };
        const { last, label } = await (await post("/api/correct", body)).json();
        this.changed(last);
        await this.show();
        if (label !== body.value) this.fail({ status: 200, message: `Noted; the label that counts is ${label === null ? "none" : this.wordsOf(label)}, as others said or decided.` });
      } catch (error) {
        select.disabled = false;
        this.fail(error);
      }
    });
    return select;
  }
}

// Other options in a list, of which the chosen one stays if it is still there.
function choices(select, options) {
  const before = select.value;
  select.replaceChildren(...options);
  select.value = options.some((one) => one.value === before) ? before : "";
}
