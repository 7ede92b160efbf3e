// Stacks and baselines: the weighted mean of what networks predict, and linear models of words or of vectors.
// They compute what portable.py computes. A row is [column, value] pairs: of few words, or of all dimensions of a vector.

import { softmax } from "./backbone.js";
import { classOf } from "./characters.js";
import { answer } from "./predict.js";
import { Words, lengthOf } from "./words.js";

const LEAST = 2.2250738585072014e-308; // the smallest probability of which there is a logarithm

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

  // The nats that a label loses without each word between white space; tell() is called after every word, and may wait.
  async erasure(text, target, tell) {
    const words = text.split(this.space).filter(Boolean);
    if (!words.length) throw new Error("an empty text has nothing to explain; give some words");
    const number = this.settings.labels.indexOf(target);
    const nats = (one) => Math.log(Math.max(this.probabilities(one)[number], LEAST));
    const whole = nats(text);
    const values = [];
    for (let erased = 0; erased < words.length; erased++) {
      values.push(whole - nats(words.filter((_, i) => i !== erased).join(" ")));
      await tell(erased + 1, words.length);
    }
    return { target, words, importance: { erasure: values } };
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
