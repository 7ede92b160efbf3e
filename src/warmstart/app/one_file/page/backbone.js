// The backbone: token ids to hidden states, with the switches of BackboneConfig.
// Letters: T tokens, S tokens and those in the cache, D width, H heads, G heads of keys and values, K head width.

import { product } from "./weights.js";

// erf to about 1e-7 (Abramowitz and Stegun 7.1.26).
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const y = 1 - ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
  return x < 0 ? -y : y;
}

export const ACTIVATIONS = {
  relu: (x) => (x > 0 ? x : 0),
  gelu: (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2)),
  "gelu-tanh": (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
  silu: (x) => x / (1 + Math.exp(-x)),
};

// Layer or RMS norm of each row of D numbers; a new array.
export function normalized(x, width, { rms = false, eps, weight = null, bias = null }) {
  const y = new Float32Array(x.length);
  for (let at = 0; at < x.length; at += width) {
    let mean = 0;
    if (!rms) for (let i = 0; i < width; i++) mean += x[at + i] / width;
    let variance = 0;
    for (let i = 0; i < width; i++) variance += (x[at + i] - mean) ** 2 / width;
    const scale = 1 / Math.sqrt(variance + eps);
    for (let i = 0; i < width; i++) y[at + i] = (x[at + i] - mean) * scale * (weight ? weight[i] : 1) + (bias ? bias[i] : 0);
  }
  return y;
}

function added(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
  return x;
}

export class Backbone {
  constructor(config, weights) {
    this.config = config;
    this.weights = weights;
    this.angles = { global: this.frequencies(config.rotary), local: this.frequencies(config.windowRotary) };
  }

  frequencies({ base, scaling }) {
    const { perHead } = this.config;
    return Array.from({ length: perHead / 2 }, (_, i) => {
      const frequency = Math.fround(base ** ((-2 * i) / perHead));
      if (!scaling) return frequency;
      const [factor, low, high, length] = scaling;
      const kept = Math.min(1, Math.max(0, ((length * frequency) / (2 * Math.PI) - low) / (high - low)));
      return kept * frequency + ((1 - kept) * frequency) / factor;
    });
  }

  // A cache of keys and values of each block, for text that is written token after token.
  cache() {
    return { tokens: 0, blocks: Array.from({ length: this.config.depth }, () => ({ keys: null, values: null })) };
  }

  // The last hidden states (T, D) of a row of ids; `types`: of a pair, the token type of each.
  states(ids, causal, { types = null, cache = this.cache() } = {}) {
    const past = cache.tokens;
    let x = this.embedded(ids, past, types);
    const layers = [x];
    for (let i = 0; i < this.config.depth; i++) {
      x = this.block(x, i, ids.length, past, causal, cache.blocks[i]);
      layers.push(x);
    }
    cache.tokens += ids.length;
    const last = this.config.norm === "pre" ? this.norm(x, "norm") : x;
    return this.config.mix ? this.mixed(layers, last) : last;
  }

  norm(x, name) {
    const { width, normType, eps } = this.config;
    const [weight, bias] = [this.weights.get(`backbone.${name}.weight`), this.weights.get(`backbone.${name}.bias`)];
    return normalized(x, width, { rms: normType === "rms", eps, weight, bias });
  }

  linear(x, rows, name) {
    const weight = this.weights.get(`backbone.${name}.weight`);
    return product(x, rows, weight, this.weights.get(`backbone.${name}.bias`), this.weights.rows(`backbone.${name}.weight`));
  }

  embedded(ids, past, types) {
    const { width, scale, positions, offset } = this.config;
    const x = new Float32Array(ids.length * width);
    ids.forEach((id, t) => {
      const at = t * width;
      this.weights.addRow("backbone.embedding.weight", id, x, at, scale);
      if (this.config.tokenTypes) this.weights.addRow("backbone.token_types.weight", types ? types[t] : 0, x, at);
      if (positions === "learned") this.weights.addRow("backbone.positions.weight", past + t + offset, x, at);
      if (positions === "sinusoidal") {
        for (let i = 0; i < width; i++) {
          const angle = (past + t + offset) * Math.exp((-(i - (i % 2)) * Math.log(10000)) / width);
          x[at + i] += i % 2 ? Math.cos(angle) : Math.sin(angle);
        }
      }
    });
    return this.config.embeddingNorm ? this.norm(x, "embedding_norm") : x;
  }

  block(x, i, count, past, causal, cache) {
    const name = `blocks.${i}`;
    const { norm, firstNorm } = this.config;
    if (norm === "pre") {
      const read = i === 0 && !firstNorm ? x : this.norm(x, `${name}.norm_1`);
      const sum = added(this.attention(read, i, count, past, causal, cache), x);
      return added(this.feedforward(this.norm(sum, `${name}.norm_2`), name, count), sum);
    }
    const sum = this.norm(added(this.attention(x, i, count, past, causal, cache), x), `${name}.norm_1`);
    return this.norm(added(this.feedforward(sum, name, count), sum), `${name}.norm_2`);
  }

  feedforward(x, name, count) {
    const inner = this.linear(x, count, `${name}.feedforward.inner`);
    const { activation, feedforward } = this.config;
    const act = ACTIVATIONS[{ swiglu: "silu", geglu: "gelu" }[activation] ?? activation];
    let hidden = inner;
    if (activation === "swiglu" || activation === "geglu") {
      hidden = new Float32Array(count * feedforward);
      for (let t = 0; t < count; t++) {
        for (let j = 0; j < feedforward; j++) {
          hidden[t * feedforward + j] = act(inner[2 * t * feedforward + j]) * inner[(2 * t + 1) * feedforward + j];
        }
      }
    } else {
      for (let j = 0; j < inner.length; j++) inner[j] = act(inner[j]);
    }
    return this.adapted(this.linear(hidden, count, `${name}.feedforward.out`), `${name}.feedforward`, count);
  }

  // What a bottleneck adapter adds, if there is one.
  adapted(x, name, count) {
    if (!this.weights.has(`backbone.${name}.adapter.down.weight`)) return x;
    const down = this.linear(x, count, `${name}.adapter.down`);
    const act = ACTIVATIONS[this.config.bottleneck];
    for (let j = 0; j < down.length; j++) down[j] = act(down[j]);
    return added(this.linear(down, count, `${name}.adapter.up`), x);
  }

  attention(x, i, count, past, causal, cache) {
    const { heads, groups, perHead, qkNorm, positions, window, globalEvery, eps } = this.config;
    const local = window !== null && i % globalEvery !== 0;
    const all = this.linear(x, count, `blocks.${i}.attention.qkv`);
    const [queries, keys, values] = this.parts(all, count);
    if (qkNorm) {
      for (const [part, name] of [[queries, "norm_q"], [keys, "norm_k"]]) {
        part.set(normalized(part, perHead, { rms: true, eps, weight: this.weights.get(`backbone.blocks.${i}.attention.${name}.weight`) }));
      }
    }
    if (positions === "rotary") {
      const angles = local ? this.angles.local : this.angles.global;
      this.rotate(queries, heads, past, angles);
      this.rotate(keys, groups, past, angles);
    }
    cache.keys = joined(cache.keys, keys);
    cache.values = joined(cache.values, values);
    const mixed = this.attend(queries, cache.keys, cache.values, count, past, causal, local ? window : null);
    return this.adapted(this.linear(mixed, count, `blocks.${i}.attention.out`), `blocks.${i}.attention`, count);
  }

  // Queries (T, H K), keys and values (T, G K) from the rows that hold all three.
  parts(all, count) {
    const { heads, groups, perHead } = this.config;
    const sizes = [heads * perHead, groups * perHead, groups * perHead];
    const width = sizes[0] + 2 * sizes[1];
    let start = 0;
    return sizes.map((size) => {
      const part = new Float32Array(count * size);
      for (let t = 0; t < count; t++) part.set(all.subarray(t * width + start, t * width + start + size), t * size);
      start += size;
      return part;
    });
  }

  rotate(x, heads, past, angles) {
    const { perHead } = this.config;
    const half = perHead / 2;
    const count = x.length / (heads * perHead);
    for (let t = 0; t < count; t++) {
      for (let j = 0; j < half; j++) {
        const angle = (past + t) * angles[j];
        const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
        for (let h = 0; h < heads; h++) {
          const at = (t * heads + h) * perHead + j;
          const [front, back] = [x[at], x[at + half]];
          x[at] = front * cos - back * sin;
          x[at + half] = back * cos + front * sin;
        }
      }
    }
  }

  attend(queries, keys, values, count, past, causal, window) {
    const { heads, groups, perHead } = this.config;
    const [step, total, factor] = [groups * perHead, past + count, perHead ** -0.5];
    const mixed = new Float32Array(count * heads * perHead);
    const weights = new Float64Array(total);
    for (let t = 0; t < count; t++) {
      const place = past + t;
      const first = window === null ? 0 : Math.max(0, place - window);
      const last = Math.min(causal ? place : total - 1, window === null ? total - 1 : place + window);
      for (let h = 0; h < heads; h++) {
        const q = (t * heads + h) * perHead;
        const k = Math.floor((h * groups) / heads) * perHead;
        let most = -Infinity;
        for (let s = first; s <= last; s++) {
          let score = 0;
          const at = s * step + k;
          for (let j = 0; j < perHead; j++) score += queries[q + j] * keys[at + j];
          weights[s] = score * factor;
          if (weights[s] > most) most = weights[s];
        }
        let sum = 0;
        for (let s = first; s <= last; s++) sum += weights[s] = Math.exp(weights[s] - most);
        for (let s = first; s <= last; s++) {
          const share = weights[s] / sum;
          const at = s * step + k;
          for (let j = 0; j < perHead; j++) mixed[q + j] += share * values[at + j];
        }
      }
    }
    return mixed;
  }

  // A learned weighted sum of all layers, each but the last normalised without parameters.
  mixed(layers, last) {
    const shares = softmax([...this.weights.get("backbone.scalar_mix.scores")]);
    const gamma = this.weights.get("backbone.scalar_mix.gamma")[0];
    const all = [...layers.slice(0, -1).map((layer) => normalized(layer, this.config.width, { eps: 1e-5 })), last];
    const sum = new Float32Array(last.length);
    all.forEach((layer, i) => {
      for (let j = 0; j < sum.length; j++) sum[j] += gamma * shares[i] * layer[j];
    });
    return sum;
  }
}

function joined(before, now) {
  if (!before) return now;
  const whole = new Float32Array(before.length + now.length);
  whole.set(before);
  whole.set(now, before.length);
  return whole;
}

export function softmax(logits) {
  const most = logits.reduce((one, other) => Math.max(one, other), -Infinity);
  const powers = logits.map((one) => Math.exp(one - most));
  const sum = powers.reduce((one, other) => one + other, 0);
  return powers.map((one) => one / sum);
}
