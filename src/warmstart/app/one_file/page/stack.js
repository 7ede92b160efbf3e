// Stacks and baselines: the weighted mean of what networks predict, and linear models of words or of vectors.
// They compute what portable.py computes. A row is [column, value] pairs: of few words, or of all dimensions of a vector.

import { softmax } from "./backbone.js";
import { classOf, lowerCases, lowered } from "./characters.js";
import { answer, lost } from "./predict.js";

const LEAST = 2.2250738585072014e-308; // the smallest probability of which there is a logarithm
const LENGTHS = [2, 3, 4, 5]; // of character n-grams
const FINAL_SIGMA = /(?<=(?!\p{Case_Ignorable})\p{Cased}\p{Case_Ignorable}*)Σ(?!\p{Case_Ignorable}*(?!\p{Case_Ignorable})\p{Cased})/gu;

export class Stack {
  constructor(settings, members, networks, weights, characters) {
    Object.assign(this, { settings, networks, space: new RegExp(`[${classOf(characters.space)}]+`, "u") });
    this.members = members.map((one, number) => {
      const own = weights.under(`members.${number}.`);
      const words = one.rows === "words" ? new Words(one, own, characters) : null;
      return { ...one, weights: own, words, share: one.weight / members.reduce((sum, other) => sum + other.weight, 0) };
    });
  }

  // What a text loses: that of the network that reads least of it.
  encode(input) {
    return { unread: Math.max(0, ...this.networks.map((one) => one.encode(input).unread)) };
  }

  probabilities(input) {
    const several = this.settings.task === "multilabel";
    const vectors = this.networks.map((one) => (one.settings.labels.length ? null : one.vector(input)));
    const mean = this.settings.labels.map(() => 0);
    for (const member of this.members) {
      const found = member.kind === "bundle" ? this.networks[member.network].probabilities(input) : predicted(member, input, vectors[member.network]);
      tempered(found, member.temperature, several).forEach((one, i) => (mean[i] += member.share * one));
    }
    return tempered(mean, this.settings.temperature, several);
  }

  predict(input, top, lowest) {
    return answer(this.settings, this.probabilities(input), top, lowest);
  }

  // Words are what stands between white space.
  async erasure(text, target, tell) {
    const words = text.split(this.space).filter(Boolean);
    const number = this.settings.labels.indexOf(target);
    const without = (at) => Math.log(Math.max(this.probabilities(at < 0 ? text : words.filter((_, i) => i !== at).join(" "))[number], LEAST));
    return lost(words, target, without, tell);
  }
}

// Probabilities whose logits are divided by a temperature; of several labels each by itself.
function tempered(found, temperature, several) {
  if (temperature === 1) return found;
  const logits = (values) => values.map((one) => Math.log(Math.max(one, 1e-30)) / temperature);
  return several ? found.map((one) => softmax(logits([1 - one, one]))[1]) : softmax(logits(found));
}

function predicted(member, input, vector) {
  const row = member.words ? member.words.row(input) : vector ? standardised(vector, member.weights) : [];
  const parts = member.readouts.map((one, number) => readOut(one, member.weights.under(`${number}.`), row));
  return member.per_label ? parts.map((one) => one[1]) : parts[0];
}

function standardised(vector, weights) {
  const [mean, scale] = [weights.get("mean"), weights.get("scale")];
  return Array.from(vector, (one, i) => [i, (one - mean[i]) / scale[i]]);
}

function readOut(settings, weights, row) {
  if (settings.kind === "constant") return Array.from(weights.get("values"));
  const bias = Array.from(weights.get("bias"));
  const sums = new Float64Array(bias.length);
  const length = settings.unit_length ? lengthOf(row.map(([, value]) => value)) || 1 : 1;
  for (const [column, value] of row) weights.addRow("weights", column, sums, 0, value / length);
  return softmax(bias.map((one, i) => one + sums[i]));
}

// The words of a text as scikit-learn counts them: the vocabulary's, in Python's classes of characters and lower case.
class Words {
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

function lengthOf(values) {
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
