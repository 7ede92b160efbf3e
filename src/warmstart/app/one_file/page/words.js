// The words of a text as scikit-learn counts them: the vocabulary's, in Python's classes of characters and lower case.

import { classOf, lowerCases, lowered } from "./characters.js";

const LENGTHS = [2, 3, 4, 5]; // of character n-grams
const FINAL_SIGMA = /(?<=(?!\p{Case_Ignorable})\p{Cased}\p{Case_Ignorable}*)Σ(?!\p{Case_Ignorable}*(?!\p{Case_Ignorable})\p{Cased})/gu;

export class Words {
  constructor({ vocabulary, word_pairs, characters }, weights, { word, space, lower }) {
    Object.assign(this, { pairs: word_pairs, characters, weights });
    this.columns = new Map(vocabulary.map((one, column) => [one, column]));
    const [letters, spaces] = [classOf(word), classOf(space)];
    this.word = new RegExp(`[${letters}]+|[^${letters}${spaces}]`, "gu");
    this.space = new RegExp(`[${spaces}]+`, "u");
    this.cases = lowerCases(lower);
  }

  // [column, weight] of each word that is known: TF-IDF of length 1, or 1; or the dimensions along directions, of length 1.
  row(input) {
    const counts = new Map();
    for (const term of this.terms([].concat(input).join(" "))) {
      const column = this.columns.get(term);
      if (column !== undefined) counts.set(column, (counts.get(column) ?? 0) + 1);
    }
    const idf = this.weights.get("idf");
    const words = idf ? ofLengthOne([...counts].map(([column, count]) => [column, (1 + Math.log(count)) * idf[column]])) : [...counts.keys()].map((column) => [column, 1]);
    if (!this.weights.has("directions")) return words;
    const along = new Float64Array(this.weights.columns("directions"));
    for (const [column, weight] of words) this.weights.addRow("directions", column, along, 0, weight);
    return ofLengthOne(Array.from(along, (one, i) => [i, one]));
  }

  terms(text) {
    const low = lowered(text.replace(FINAL_SIGMA, "ς"), this.cases);
    if (this.characters) return low.split(this.space).filter(Boolean).flatMap((word) => ngrams([" ", ...word, " "]));
    const words = low.match(this.word) ?? [];
    return this.pairs ? [...words, ...words.slice(1).map((word, i) => `${words[i]} ${word}`)] : words;
  }
}

function ofLengthOne(row) {
  const length = lengthOf(row.map(([, value]) => value)) || 1;
  return row.map(([column, value]) => [column, value / length]);
}

export function lengthOf(values) {
  return Math.sqrt(values.reduce((sum, one) => sum + one * one, 0));
}

// Those of a word with a space at either end. If it is no longer than some of them, it is one itself, once.
function ngrams(letters) {
  const found = [];
  for (const size of LENGTHS.filter((one) => one < letters.length)) {
    for (let start = 0; start + size <= letters.length; start++) found.push(letters.slice(start, start + size).join(""));
  }
  return letters.length > LENGTHS.at(-1) ? found : [...found, letters.join("")];
}
