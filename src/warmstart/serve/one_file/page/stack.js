// Stacks and baselines: the weighted mean of what networks predict, and linear models or neighbours of words or of vectors.
// They compute what portable.py computes. A row is [column, value] pairs: of few words, or of all dimensions of a vector.

import { softmax } from "./backbone.js";
import { classOf } from "./characters.js";
import { answer } from "./predict.js";
import { Words, lengthOf } from "./words.js";

const RESOLUTION = 1e-6; // distances that differ by less are equal: those of float32 numbers
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
  if (settings.kind === "neighbours") return near(settings, weights, row.map(([, value]) => value));
  const bias = Array.from(weights.get("bias"));
  const sums = new Float64Array(bias.length);
  const length = settings.unit_length ? lengthOf(row.map(([, value]) => value)) || 1 : 1;
  for (const [column, value] of row) weights.addRow("weights", column, sums, 0, value / length);
  return softmax(bias.map((one, i) => one + sums[i]));
}

// The mean of what is known of the nearest texts: by cosine the nearer ones count more, by distance all alike.
function near({ count, metric }, weights, row) {
  const [rows, targets, floor] = ["rows", "targets", "floor"].map((name) => weights.get(name));
  const length = lengthOf(row);
  const distances = Array.from({ length: weights.rows("rows") }, (_, text) => {
    const known = rows.subarray(text * row.length, (text + 1) * row.length);
    if (metric !== "cosine") return Math.round(lengthOf(row.map((one, i) => one - known[i])) / RESOLUTION);
    const product = row.reduce((sum, one, i) => sum + one * known[i], 0);
    return Math.round(Math.min(2, Math.max(0, 1 - product / (length * lengthOf(known) || 1))) / RESOLUTION);
  });
  const nearest = distances.map((_, i) => i).sort((a, b) => distances[a] - distances[b] || a - b).slice(0, count);
  const same = nearest.some((text) => distances[text] === 0);
  const shares = nearest.map((text) => (metric !== "cosine" ? 1 : same ? Number(distances[text] === 0) : 1 / distances[text]));
  const total = shares.reduce((sum, one) => sum + one, 0);
  const found = Array.from(floor, (least, c) => {
    const mean = nearest.reduce((sum, text, i) => sum + shares[i] * targets[text * floor.length + c], 0) / total;
    return Math.max(0, mean) + least;
  });
  const sum = found.reduce((one, other) => one + other, 0);
  return found.map((one) => one / sum);
}
