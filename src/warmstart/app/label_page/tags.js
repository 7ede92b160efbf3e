// A text as words that can be chosen, by mouse or by keys, and given labels.

import { make } from "./elements.js";

const COLOURS = 7;

export class Tags {
  constructor(element, words, tags, labels) {
    this.tags = tags;
    this.labels = labels;
    this.anchor = this.focus = 0;
    this.words = words.map((word) => make("span", { role: "option", className: "word", tabIndex: -1 }, make("span", { textContent: word })));
    this.texts = words;
    this.box = make("div", { className: "tagging-text", dir: "auto", role: "listbox", ariaLabel: "Words", ariaMultiSelectable: "true", ariaOrientation: "horizontal" });
    for (const word of this.words) this.box.append(word, " ");
    element.replaceChildren(this.box);
    this.words.forEach((_, at) => this.show(at));
    this.choose(0, 0, false);
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    this.box.addEventListener("pointerdown", (event) => this.onPointer(event, true));
    this.box.addEventListener("pointerover", (event) => event.buttons === 1 && event.pointerType === "mouse" && this.onPointer(event, false));
  }

  // The chosen words get a label, and the next word is chosen.
  set(label) {
    const [from, to] = this.span();
    for (let at = from; at <= to; at += 1) this.tags[at] = label;
    for (let at = Math.max(0, from - 1); at <= Math.min(to + 1, this.words.length - 1); at += 1) this.show(at);
    return this.texts.slice(from, to + 1).join(" ");
  }

  relabel(labels) {
    this.labels = labels;
    this.words.forEach((_, at) => this.show(at));
  }

  span() {
    return [Math.min(this.anchor, this.focus), Math.max(this.anchor, this.focus)];
  }

  show(at) {
    const word = this.words[at];
    const label = this.tags[at] ? this.labels.find((one) => one.id === this.tags[at]) : null;
    const name = label?.name ?? (this.tags[at] ? "a label that is gone" : "");
    word.className = name ? `word tagged tag-${this.tags[at] % COLOURS}` : "word";
    word.setAttribute("aria-label", name ? `${this.texts[at]}, ${name}` : this.texts[at]);
    word.querySelector("small")?.remove();
    if (name && (at === 0 || this.tags[at - 1] !== this.tags[at])) word.append(make("small", { dir: "auto", ariaHidden: "true", textContent: name }));
  }

  choose(anchor, focus, moves = true) {
    const before = this.marked ?? [];
    for (const word of before) word.setAttribute("aria-selected", "false");
    if (this.words[this.focus]) this.words[this.focus].tabIndex = -1;
    [this.anchor, this.focus] = [anchor, focus];
    const [from, to] = this.span();
    this.marked = this.words.slice(from, to + 1);
    for (const word of this.marked) word.setAttribute("aria-selected", "true");
    const word = this.words[focus];
    if (!word) return;
    word.tabIndex = 0;
    if (moves) word.focus();
  }

  onPointer(event, begins) {
    const at = this.words.indexOf(event.target.closest(".word"));
    if (at < 0) return;
    if (begins) event.preventDefault(); // no selection of text; the word gets the focus below
    this.choose(begins && !event.shiftKey ? at : this.anchor, at);
  }

  onKey(event) {
    const last = this.words.length - 1;
    const forward = getComputedStyle(this.box).direction === "rtl" ? -1 : 1;
    const to = { ArrowRight: this.focus + forward, ArrowLeft: this.focus - forward, Home: 0, End: last }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const at = Math.max(0, Math.min(last, to));
    this.choose(event.shiftKey ? this.anchor : at, at);
  }
}

// Words with the same label, as a sentence: "Paris: PLACE, Anna Karenina: PERSON".
export function spansOf(words, tags, nameOf) {
  const spans = [];
  tags.forEach((tag, at) => {
    const last = spans.at(-1);
    if (last && last.tag === tag) last.words.push(words[at]);
    else spans.push({ tag, words: [words[at]] });
  });
  const told = spans.filter((one) => one.tag).map((one) => `${one.words.join(" ")}: ${nameOf(one.tag)}`);
  return told.join(", ") || "no labels";
}
