// Predictions: texts framed and cut as in training, read by the backbone and a head, with the calibrated temperature.

import { ACTIVATIONS, softmax } from "./backbone.js";
import { product } from "./weights.js";

const rounded = (value, digits) => Number(value.toFixed(digits));

// Probabilities as the server answers; below the `lowest` confidence the model abstains.
export function answer({ labels, task, thresholds }, found, top = 10, lowest = 0) {
  const order = found.map((_, i) => i).sort((a, b) => found[b] - found[a] || a - b);
  const probabilities = Object.fromEntries(order.slice(0, top).map((i) => [labels[i], rounded(found[i], 4)]));
  const confidence = rounded(found[order[0]], 6);
  const abstained = confidence < lowest;
  const said = task === "multilabel" ? { labels: labels.filter((_, i) => found[i] >= (thresholds[i] ?? 0.5)) } : { label: abstained ? null : labels[order[0]] };
  return { ...said, probabilities, confidence, abstained };
}

export class Predictor {
  constructor(settings, tokenizer, backbone, weights) {
    Object.assign(this, { settings, tokenizer, backbone, weights });
    this.ids = tokenizer.spec.ids;
  }

  // An input as token ids: `unread` tokens (or words) did not fit; `types` of a pair, `starts` the first token of each word to be tagged.
  encode(input) {
    const { max_length: most } = this.settings;
    const { eos, cls } = this.ids;
    const { opening } = this.tokenizer.spec;
    const room = most - opening.length - 1;
    const last = this.settings.head.pooling === "appended" ? cls : eos;
    if (this.settings.task === "tagging") return this.encodeWords(input);
    if (typeof input === "string") {
      const whole = this.tokenizer.encode(input);
      return { ids: [...opening, ...whole.slice(0, room), last], unread: Math.max(0, whole.length - room) };
    }
    const [first, second] = input.map((text) => this.tokenizer.encode(text));
    const { between } = this.tokenizer.spec;
    const free = room - between.length;
    const kept = Math.min(first.length, Math.max(free - second.length, Math.floor(free / 2)));
    const ids = [...opening, ...first.slice(0, kept), ...between, ...second.slice(0, free - kept), last];
    const unread = Math.max(0, first.length + second.length - free);
    return { ids, unread, types: this.settings.typed ? ids.map((_, i) => (i < opening.length + kept + between.length ? 0 : 1)) : null };
  }

  // Each word with the space before it, unless the tokenizer puts one there itself; a word that does not fit is left out.
  encodeWords(words) {
    const [bare, spaced] = [this.tokenizer.encode("a"), this.tokenizer.encode(" a")];
    const adds = String(bare) !== String(spaced) && bare.length > 0 && this.tokenizer.token(bare[0]).startsWith("▁");
    const { opening } = this.tokenizer.spec;
    const row = [...opening];
    const starts = [];
    for (const [number, word] of words.entries()) {
      const found = this.tokenizer.encode(number === 0 || adds ? word : ` ${word}`);
      const ids = found.length ? found : [this.ids.unk];
      if (row.length + ids.length > this.settings.max_length - 1) break;
      starts.push(row.length);
      row.push(...ids);
    }
    return { ids: [...row, this.ids.eos], starts, unread: words.length - starts.length };
  }

  linear(x, rows, name) {
    const weight = this.weights.get(`head.${name}.weight`);
    return product(x, rows, weight, this.weights.get(`head.${name}.bias`), this.weights.rows(`head.${name}.weight`));
  }

  // The vector of a text, by a head without labels.
  vector(input) {
    const { ids, types } = this.encode(input);
    return this.hidden(this.pooled(this.backbone.states(ids, this.settings.causal, { types }), ids.length));
  }

  // The logits of a row, over the temperature; of tags, those of every token.
  logits({ ids, types }) {
    const states = this.backbone.states(ids, this.settings.causal, { types });
    if (this.settings.task === "tagging") return this.linear(states, ids.length, "score");
    const pooled = this.hidden(this.pooled(states, ids.length));
    return Array.from(this.linear(pooled, 1, "score"), (one) => one / this.settings.temperature);
  }

  pooled(states, count) {
    const { width } = this.backbone.config;
    const { pooling } = this.settings.head;
    if (pooling === "first") return states.subarray(0, width);
    if (pooling !== "mean") return states.subarray((count - 1) * width);
    const mean = new Float32Array(width);
    for (let i = 0; i < states.length; i++) mean[i % width] += states[i] / count;
    return mean;
  }

  hidden(pooled) {
    const { hidden, normalize } = this.settings.head;
    const act = hidden === "tanh" ? Math.tanh : ACTIVATIONS[hidden];
    const read = !hidden || hidden === "none" ? pooled : this.linear(pooled, 1, "hidden").map(act);
    if (!normalize) return read;
    const length = Math.hypot(...read);
    return read.map((one) => one / length);
  }

  // The probabilities of a text's labels, in their order.
  probabilities(input) {
    const logits = this.logits(this.encode(input));
    return this.settings.task === "multilabel" ? logits.map((one) => 1 / (1 + Math.exp(-one))) : softmax(logits);
  }

  tags(words) {
    const { labels } = this.settings;
    const encoded = this.encode(words);
    const logits = this.logits(encoded);
    const tagOf = (start) => {
      const scores = logits.subarray(start * labels.length, (start + 1) * labels.length);
      return labels[scores.indexOf(Math.max(...scores))];
    };
    const tags = encoded.starts.map(tagOf);
    return { words, tags: words.map((_, i) => tags[i] ?? null) };
  }

  predict(input, top, lowest) {
    return this.settings.task === "tagging" ? this.tags(input) : answer(this.settings, this.probabilities(input), top, lowest);
  }

  // The nats that a label loses without each word; tell() is called after every word, and may wait.
  async erasure(text, target, tell) {
    const { ids } = this.encode(text);
    const begun = this.tokenizer.spec.opening.length;
    if (this.tokenizer.encode(text).length > this.settings.max_length - begun - 1) {
      throw new Error(`the text must fit into ${this.settings.max_length} tokens; give a part of it`);
    }
    const owner = [];
    let word = -1;
    for (let i = begun; i < ids.length - 1; i++) {
      if (i === begun || this.tokenizer.startsWord(ids[i])) word++;
      owner[i] = word;
    }
    if (word < 0) throw new Error("an empty text has nothing to explain; give some words");
    const number = this.settings.labels.indexOf(target);
    const nats = (row) => Math.log(softmax(this.logits({ ids: row }))[number]);
    const whole = nats(ids);
    const [words, values] = [[], []];
    for (let erased = 0; erased <= word; erased++) {
      words.push(this.named(ids.filter((_, i) => owner[i] === erased)));
      values.push(whole - nats(ids.filter((_, i) => owner[i] !== erased)));
      await tell(erased + 1, word + 1);
    }
    return { target, words, importance: { erasure: values } };
  }

  named(ids) {
    const text = this.tokenizer.decode(ids);
    return text.trim() || text || ids.map((id) => this.tokenizer.token(id)).join("");
  }
}
