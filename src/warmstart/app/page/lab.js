// The maths of the attention lab (docs/tutorials/attention-lab.md): softmax(K q) over keys in the plane, without a scale.

const NOISE = Math.sqrt(0.5); // standard deviation of a noisy key's length
const GOLDEN = (Math.sqrt(5) - 1) / 2;

export function scoresOf(query, keys) {
  return keys.map(([x, y]) => x * query[0] + y * query[1]);
}

export function softmaxWeights(query, keys) {
  const scores = scoresOf(query, keys);
  const most = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - most));
  const sum = weights.reduce((total, one) => total + one, 0);
  return weights.map((one) => one / sum);
}

// The weights of the output of several heads: the mean of theirs, since they share the values.
export function meanWeights(queries, keys) {
  const heads = queries.map((query) => softmaxWeights(query, keys));
  return keys.map((_, i) => mean(heads.map((weights) => weights[i])));
}

// Lengths of a key that are spread like N(1, 1/2), the same ones every time: Box-Muller on evenly spread points.
export function keyLengths(count) {
  const radius = (i) => Math.sqrt(-2 * Math.log((i + 0.5) / count));
  return Array.from({ length: count }, (_, i) => 1 + NOISE * radius(i) * Math.cos(2 * Math.PI * GOLDEN * i));
}

// For each length of the first key: its weight among the first two.
export function noisyWeights(queries, keys, lengths) {
  const size = Math.hypot(...keys[0]) || 1;
  return lengths.map((length) => {
    const [a, b] = meanWeights(queries, [keys[0].map((one) => (one * length) / size), ...keys.slice(1)]);
    return a / (a + b);
  });
}

export function mean(values) {
  return values.reduce((sum, one) => sum + one, 0) / values.length;
}

export function deviation(values) {
  const middle = mean(values);
  return Math.sqrt(mean(values.map((one) => (one - middle) ** 2)));
}
