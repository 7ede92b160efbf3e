// The weights inside the page, and the one product that all layers are made of.

// Bytes from base64, inflated by the browser itself.
export async function inflated(text) {
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// The tensors by name: float32 numbers; `embedding` stays integers, of which a row at a time is read.
export class Weights {
  constructor(layout, buffer) {
    this.floats = new Float32Array(buffer, 0, layout.floats);
    this.integers = new Int8Array(buffer, 4 * layout.floats, layout.integers);
    this.places = new Map(layout.tensors.map(([name, shape, start, scales]) => [name, { shape, start, scales }]));
    this.whole = new Map();
  }

  // Those whose names begin so, without that beginning.
  under(start) {
    const own = [...this.places].filter(([name]) => name.startsWith(start)).map(([name, place]) => [name.slice(start.length), place]);
    return Object.assign(Object.create(Weights.prototype), this, { places: new Map(own), whole: new Map() });
  }

  has(name) {
    return this.places.has(name);
  }

  rows(name) {
    return this.places.get(name).shape[0];
  }

  columns(name) {
    return this.places.get(name).shape[1];
  }

  // The numbers of a tensor, null if there is none of this name.
  get(name) {
    if (!this.has(name)) return null;
    if (!this.whole.has(name)) this.whole.set(name, this.read(name));
    return this.whole.get(name);
  }

  read(name) {
    const { shape, start, scales } = this.places.get(name);
    const count = shape.reduce((product, one) => product * one, 1);
    if (scales === null) return this.floats.subarray(start, start + count);
    const found = new Float32Array(count);
    for (let row = 0; row < shape[0]; row++) this.addRow(name, row, found, row * shape[1]);
    return found;
  }

  // Adds one row of a matrix to `out` from `at` on, times `factor`.
  addRow(name, row, out, at, factor = 1) {
    const { shape, start, scales } = this.places.get(name);
    const columns = shape[1];
    const from = start + row * columns;
    const numbers = scales === null ? this.floats : this.integers;
    const scale = factor * (scales === null ? 1 : this.floats[scales + row]);
    for (let i = 0; i < columns; i++) out[at + i] += Math.fround(numbers[from + i] * scale);
  }
}

// x W^T + b: x has `rows` rows of as many numbers as W has columns. Four rows and two outputs at a time stay in registers.
export function product(x, rows, weight, bias, outputs) {
  const inputs = weight.length / outputs;
  const y = new Float32Array(rows * outputs);
  let row = 0;
  for (; row + 4 <= rows; row += 4) fourRows(x, row, weight, bias, inputs, outputs, y);
  for (; row < rows; row++) {
    const at = row * inputs;
    for (let o = 0; o < outputs; o++) {
      const w = o * inputs;
      let one = bias ? bias[o] : 0;
      let other = 0;
      let i = 0;
      for (; i + 1 < inputs; i += 2) {
        one += weight[w + i] * x[at + i];
        other += weight[w + i + 1] * x[at + i + 1];
      }
      if (i < inputs) one += weight[w + i] * x[at + i];
      y[row * outputs + o] = one + other;
    }
  }
  return y;
}

function fourRows(x, row, weight, bias, inputs, outputs, y) {
  const [x0, x1, x2, x3] = [row * inputs, (row + 1) * inputs, (row + 2) * inputs, (row + 3) * inputs];
  const [y0, y1, y2, y3] = [row * outputs, (row + 1) * outputs, (row + 2) * outputs, (row + 3) * outputs];
  let o = 0;
  for (; o + 1 < outputs; o += 2) {
    const w = o * inputs;
    const v = w + inputs;
    let [a0, b0] = [bias ? bias[o] : 0, bias ? bias[o + 1] : 0];
    let [a1, a2, a3, b1, b2, b3] = [a0, a0, a0, b0, b0, b0];
    for (let i = 0; i < inputs; i++) {
      const wi = weight[w + i];
      const vi = weight[v + i];
      const p = x[x0 + i];
      const q = x[x1 + i];
      const r = x[x2 + i];
      const s = x[x3 + i];
      a0 += wi * p; b0 += vi * p;
      a1 += wi * q; b1 += vi * q;
      a2 += wi * r; b2 += vi * r;
      a3 += wi * s; b3 += vi * s;
    }
    y[y0 + o] = a0; y[y1 + o] = a1; y[y2 + o] = a2; y[y3 + o] = a3;
    y[y0 + o + 1] = b0; y[y1 + o + 1] = b1; y[y2 + o + 1] = b2; y[y3 + o + 1] = b3;
  }
  if (o === outputs) return;
  for (const [at, to] of [[x0, y0], [x1, y1], [x2, y2], [x3, y3]]) {
    let sum = bias ? bias[o] : 0;
    for (let i = 0; i < inputs; i++) sum += weight[o * inputs + i] * x[at + i];
    y[to + o] = sum;
  }
}
