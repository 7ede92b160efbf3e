// Text token after token, with the most probable tokens at every step, as `warmstart generate` writes it.

import { ACTIVATIONS, normalized, softmax } from "./backbone.js";
import { product } from "./weights.js";

// Random numbers of a seed (mulberry32): the same text for the same seed in every browser, but not that of `warmstart generate`.
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

export class Generator {
  constructor(settings, tokenizer, backbone, weights) {
    Object.assign(this, { settings, tokenizer, backbone, weights });
    this.never = new Set(settings.never_generated);
    this.weightName = weights.has("head.weight") ? "head.weight" : "backbone.embedding.weight";
  }

  // The logits of the next token after one state (D); minus infinity for tokens that are never generated.
  logits(state) {
    let read = state;
    if (this.settings.head.transform) {
      const get = (name) => this.weights.get(`head.transform.${name}`);
      const dense = product(read, 1, get("dense.weight"), get("dense.bias"), this.weights.rows("head.transform.dense.weight"));
      const made = dense.map(ACTIVATIONS.gelu);
      read = normalized(made, made.length, { eps: this.settings.head.norm_eps, weight: get("norm.weight"), bias: get("norm.bias") });
    }
    const found = product(read, 1, this.weights.get(this.weightName), this.weights.get("head.bias"), this.weights.rows(this.weightName));
    for (const id of this.never) found[id] = -Infinity;
    return found;
  }

  // Calls tell(kind, value) for every token and at the end, as the server's events; it may wait.
  async write(prompt, { max_new_tokens: most, greedy = false, temperature = 1, seed = 0 }, tell) {
    const { begin, eos } = this.tokenizer.spec.ids;
    const { width } = this.backbone.config;
    const { max_length: context } = this.settings;
    const draw = random(seed);
    const all = [begin, ...this.tokenizer.encode(prompt)];
    const written = [];
    let unread = all.slice(-context);
    let cache = this.backbone.cache();
    let told = 0;
    for (let left = most; left > 0; left--) {
      if (cache.tokens === context) [unread, cache] = [all.slice(-(Math.floor(context / 2) || 1)), this.backbone.cache()];
      const states = this.backbone.states(unread, true, { cache });
      const logits = this.logits(states.subarray(states.length - width));
      const probabilities = softmax(Array.from(logits));
      const chosen = greedy ? logits.indexOf(logits.reduce((one, other) => Math.max(one, other))) : drawn(logits, temperature, draw());
      written.push(chosen);
      const text = this.tokenizer.decode(written);
      const whole = text.replace(/\ufffd+$/, "").length; // of a character of which bytes are still missing, nothing
      await tell("token", this.step(text.slice(told, whole), chosen, probabilities));
      told = Math.max(told, whole);
      if (chosen === eos) return tell("end", { ended: true });
      all.push(chosen);
      unread = [chosen];
    }
    return tell("end", { ended: false });
  }

  step(text, chosen, probabilities) {
    const order = probabilities.map((_, i) => i).sort((a, b) => probabilities[b] - probabilities[a] || a - b);
    const name = (id) => this.tokenizer.token(id);
    return {
      text, token: name(chosen), probability: probabilities[chosen], corpus: null,
      entropy: -probabilities.reduce((sum, one) => (one > 0 ? sum + one * Math.log(one) : sum), 0),
      candidates: order.slice(0, 6).map((id) => ({ token: name(id), probability: probabilities[id] })),
    };
  }
}

function drawn(logits, temperature, chance) {
  const shares = softmax(Array.from(logits, (one) => one / temperature));
  let sum = 0;
  const found = shares.findIndex((share) => (sum += share) > chance);
  return found < 0 ? shares.length - 1 : found;
}
