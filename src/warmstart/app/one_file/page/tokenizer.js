// Text to ids and back, as the tokenizers library does it: normalise, split, guard special tokens, look up or merge.

import { classOf, lowerCases, lowered } from "./characters.js";

// GPT-2's printable character for each byte, and back.
const CHARACTER_OF = [];
const BYTE_OF = new Map();
for (let byte = 0, other = 256; byte < 256; byte++) {
  const printable = (byte >= 0x21 && byte < 0x7f) || (byte >= 0xa1 && byte < 0xad) || byte >= 0xae;
  CHARACTER_OF.push(String.fromCharCode(printable ? byte : other++));
  BYTE_OF.set(CHARACTER_OF[byte], byte);
}

const ENGLISH = [[" .", "."], [" ?", "?"], [" !", "!"], [" ,", ","], [" ' ", "'"], [" n't", "n't"], [" 'm", "'m"],
  [" do not", " don't"], [" 's", "'s"], [" 've", "'ve"], [" 're", "'re"]];
const KEPT = 20000; // words whose pieces are remembered
const OVERLAY = "\u0334"; // the mark before which all others give way

export class Tokenizer {
  constructor(spec) {
    this.spec = spec;
    this.specials = new Set(spec.specials);
    this.ids = new Map();
    spec.pieces.forEach((piece, id) => piece !== null && this.ids.set(piece, id));
    this.known = new Map();
    this.newer = new Map();
    const inside = Object.fromEntries(Object.entries(spec.characters).filter(([name]) => name !== "lower").map(([name, ranges]) => [name, classOf(ranges)]));
    const every = (name, more = "") => (inside[name] ? new RegExp(`[${inside[name]}]${more}`, "gu") : null);
    this.classes = Object.fromEntries(Object.keys(inside).map((name) => [name, every(name)]));
    this.changes = Object.fromEntries(["NFC", "NFD", "NFKC", "NFKD", "combining"].filter((form) => form in inside).map((form) => [form, new RegExp(`[${inside[form]}]`, "u")]));
    this.spaces = every("space", "+");
    this.edges = new RegExp(`^[${inside.space}]+|[${inside.space}]+$`, "gu");
    this.lower = lowerCases(spec.characters.lower ?? ["", ""]);
    if (inside.letter) {
      const { letter, number, space } = inside;
      this.words = new RegExp(
        `'s|'t|'re|'ve|'m|'ll|'d| ?[${letter}]+| ?[${number}]+| ?[^${space}${letter}${number}]+|[${space}]+(?![^${space}])|[${space}]+`, "gu");
    }
    if (inside.punctuation) this.bert = new RegExp(`[${inside.punctuation}]|[^${inside.punctuation}${inside.space}]+`, "gu");
    const escaped = (text) => text.replace(/[\^$\\.*+?()[\]{}|/]/g, "\\$&");
    const names = spec.guarded.map((name) => [...name]).map(([first, ...rest]) => `${escaped(first)}(?=${escaped(rest.join(""))})`);
    this.guard = new RegExp(names.join("|") || "(?!)", "gu");
    this.guarded = new Set(spec.guarded);
    if (spec.model.kind === "bpe") this.ranks = new Map(spec.model.merges.map((pair, rank) => [pair, rank]));
    this.longest = Math.max(...spec.pieces.map((piece) => (piece === null ? 0 : [...piece].length)));
    if (spec.model.kind === "unigram") this.least = spec.model.scores.reduce((least, one) => Math.min(least, one), Infinity);
    const bits = atob(spec.word_starts);
    this.startsWord = (id) => ((bits.charCodeAt(id >> 3) >> (7 - (id & 7))) & 1) === 1;
  }

  // The ids of a text, without special tokens.
  encode(text) {
    let normal = text.toWellFormed ? text.toWellFormed() : text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
    for (const step of this.spec.normalizers) normal = this.normalized(normal, step);
    let words = normal ? [normal] : [];
    for (const step of this.spec.splits) words = words.flatMap((word) => this.split(word, step));
    const ids = [];
    for (const word of words) for (const part of this.guardedParts(word)) for (const id of this.pieces(part)) ids.push(id);
    return ids;
  }

  normalized(text, step) {
    if (step.kind === "form") return this.inForm(text, step.form);
    if (step.kind === "lowercase") return lowered(text, this.lower);
    if (step.kind === "strip") return text.replace(this.edges, "");
    if (step.kind === "spaces") return text.replace(this.spaces, " ");
    const { removed, spaces, chinese, marks } = this.classes;
    let found = text;
    if (step.clean) found = found.replace(removed, "").replace(spaces, " ").replace(chinese, " $& ");
    if (step.accents) found = this.inForm(found, "NFD").replace(marks, "");
    return step.lowercase ? lowered(found, this.lower) : found;
  }

  // A normal form; characters that only a newer version of Unicode changes, or lets change places, stay where and as they are.
  inForm(text, form) {
    if (/^[\0-\x7f]*$/.test(text)) return text;
    let found = "";
    let part = "";
    for (const one of text) {
      if (one > "\x7f" && this.isNewer(one, form)) {
        found += part.normalize(form) + one;
        part = "";
      } else {
        part += one;
      }
    }
    return found + part.normalize(form);
  }

  isNewer(one, form) {
    const known = this.newer.get(form + one);
    if (known !== undefined) return known;
    const changes = one.normalize(form) !== one && !this.changes[form].test(one);
    const moves = one !== OVERLAY && `${one}${OVERLAY}`.normalize("NFD").startsWith(OVERLAY) && !this.changes.combining.test(one);
    if (this.newer.size >= KEPT) this.newer.clear();
    this.newer.set(form + one, changes || moves);
    return changes || moves;
  }

  split(text, step) {
    if (step.kind === "characters") return [...text];
    if (step.kind === "whitespace") return text.split(this.spaces).filter(Boolean);
    if (step.kind === "bert") return text.match(this.bert) ?? [];
    if (step.kind === "metaspace") {
      const marked = text.replaceAll(" ", "▁");
      const whole = step.prepend && !marked.startsWith("▁") ? `▁${marked}` : marked;
      return whole.split(/(?=▁)/u);
    }
    const whole = step.prefix && !text.startsWith(" ") ? ` ${text}` : text;
    const encoder = new TextEncoder();
    return (whole.match(this.words) ?? []).map((word) => Array.from(encoder.encode(word), (byte) => CHARACTER_OF[byte]).join(""));
  }

  // A spelling of a special token is cut after its first character, so that no model sees it whole.
  guardedParts(word) {
    if (this.spec.model.kind === "word") return this.guarded.has(word) ? [[...word].slice(1).join("")] : [word];
    const parts = [];
    let from = 0;
    for (const { index, 0: first } of word.matchAll(this.guard)) {
      parts.push(word.slice(from, index), first);
      from = index + first.length;
    }
    parts.push(word.slice(from));
    return parts.filter(Boolean);
  }

  pieces(word) {
    const known = this.known.get(word);
    if (known) return known;
    const { kind } = this.spec.model;
    const found = kind === "bpe" ? this.merged(word) : kind === "wordpiece" ? this.longestFirst(word) : kind === "unigram" ? this.likeliest(word) : [this.ids.get(word) ?? this.spec.ids.unk];
    if (this.known.size >= KEPT) this.known.clear();
    this.known.set(word, found);
    return found;
  }

  // Byte-pair encoding: the pair that was merged first in training is merged first, from left to right.
  merged(word) {
    const parts = [...word];
    for (;;) {
      let best = Infinity;
      let at = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i]} ${parts[i + 1]}`);
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) return parts.filter((part) => this.ids.has(part)).map((part) => this.ids.get(part));
      parts.splice(at, 2, parts[at] + parts[at + 1]);
    }
  }

  longestFirst(word) {
    const { prefix, longest } = this.spec.model;
    const letters = [...word];
    if (letters.length > longest) return [this.spec.ids.unk];
    const found = [];
    for (let start = 0; start < letters.length; ) {
      let end = Math.min(letters.length, start + this.longest);
      let id;
      for (; end > start; end--) {
        id = this.ids.get((start ? prefix : "") + letters.slice(start, end).join(""));
        if (id !== undefined) break;
      }
      if (end === start) return [this.spec.ids.unk];
      found.push(id);
      start = end;
    }
    return found;
  }

  // Unigram: the most probable split; a character that no piece spells costs ten nats more than the rarest piece.
  likeliest(word) {
    const letters = [...word];
    const { scores, unk } = this.spec.model;
    const best = new Array(letters.length + 1).fill(null);
    best[0] = { score: 0 };
    for (let start = 0; start < letters.length; start++) {
      if (!best[start]) continue;
      const till = best[start].score;
      let single = false;
      let piece = "";
      for (let end = start + 1; end <= Math.min(letters.length, start + this.longest); end++) {
        piece += letters[end - 1];
        const id = this.ids.get(piece);
        if (id === undefined || id >= scores.length) continue;
        single ||= end === start + 1;
        const score = scores[id] + till;
        if (!best[end] || score > best[end].score) best[end] = { score, id, start };
      }
      const score = this.least - 10 + till;
      if (!single && (!best[start + 1] || score > best[start + 1].score)) best[start + 1] = { score, id: unk, start };
    }
    const found = [];
    for (let end = letters.length; end > 0; end = best[end].start) {
      const { id } = best[end];
      if (id !== unk || found.at(-1) !== unk) found.push(id); // unknown characters in a row are one token
    }
    return found.reverse();
  }

  // The text of ids, without special tokens.
  decode(ids) {
    const pieces = ids.filter((id) => !this.specials.has(id)).map((id) => this.spec.pieces[id]).filter((piece) => piece !== null);
    const { kind, cleanup, prefix, prepend } = this.spec.decoder;
    if (kind === "bytes") return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytesOf(pieces.join("")) ?? new Uint8Array());
    if (kind === "metaspace") return pieces.map((piece, i) => piece.replaceAll("▁", i === 0 && prepend ? "" : " ")).join("");
    if (kind !== "wordpiece") return pieces.join(kind === "joined" ? "" : " ");
    const spaced = pieces.map((piece, i) => (i === 0 ? piece : piece.startsWith(prefix) ? piece.slice(prefix.length) : ` ${piece}`));
    return spaced.map((piece) => (cleanup ? ENGLISH.reduce((text, [from, to]) => text.replaceAll(from, to), piece) : piece)).join("");
  }

  // The name of a token: bytes as text, parts of characters as hexadecimal bytes; others as they are stored.
  token(id) {
    const piece = this.spec.pieces[id];
    const bytes = this.spec.type === "bytes" ? bytesOf(piece) : null;
    return bytes ? named(bytes) : piece;
  }
}

function bytesOf(piece) {
  const bytes = Array.from(piece, (one) => BYTE_OF.get(one));
  return bytes.includes(undefined) ? null : Uint8Array.from(bytes);
}

function named(bytes) {
  let text = "";
  for (let i = 0; i < bytes.length; ) {
    const length = bytes[i] < 0x80 ? 1 : bytes[i] >= 0xf0 ? 4 : bytes[i] >= 0xe0 ? 3 : 2;
    try {
      text += new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.subarray(i, i + length));
      i += length;
    } catch {
      text += `\\x${bytes[i++].toString(16).padStart(2, "0")}`;
    }
  }
  return text;
}
