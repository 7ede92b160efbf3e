// The attention lab (docs/tutorials/attention-lab.md) in the plane: softmax(K q), without a scale, of keys and queries that are moved.
{
  const NAMES = ["a", "b", "c", "d"];
  const KEYS = [[1, 0], [0, 1], [-1, 0], [0, -1]];
  const VALUES = [[1, 1], [-1, 1], [-1, -1], [1, -1]]; // corners, so that every mixture of two neighbours is a place of its own
  const EXPERIMENTS = {
    copying: {
      beta: 6, queries: [[1, 0]], noisy: false,
      about: "The query points along key a: with a large beta nearly all of the weight goes to a, and the output is its value.",
    },
    averaging: {
      beta: 6, queries: [[1, 1]], noisy: false,
      about: "The query is beta times the sum of the keys a and b. Both have the same score, so the output is the mean of their values.",
    },
    "one head": {
      beta: 10, queries: [[1, 1]], noisy: true,
      about: "The same query, but the length z of key a varies: its weight among a and b is sigmoid(beta (z − 1)): one head picks a or b at random. Move a towards the middle and back.",
    },
    "two heads": {
      beta: 10, queries: [[1, 0], [0, 1]], noisy: true,
      about: "Each head copies one value, and their outputs are averaged: a keeps about half of the weight, as long as its key does not change direction.",
    },
  };
  const [REACH, STEP, BINS, LENGTHS] = [1.6, 0.05, 20, 200]; // the plane to each side, an arrow key, a histogram and its lengths
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
  const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}%`;
  const scoresOf = (query, keys) => keys.map(([x, y]) => x * query[0] + y * query[1]);

  function softmaxWeights(query, keys) {
    const scores = scoresOf(query, keys);
    const weights = scores.map((score) => Math.exp(score - Math.max(...scores)));
    return weights.map((one) => one / (mean(weights) * weights.length));
  }

  // The weights of the output of several heads: the mean of theirs, since they share the values.
  function meanWeights(queries, keys) {
    const heads = queries.map((query) => softmaxWeights(query, keys));
    return keys.map((_, i) => mean(heads.map((weights) => weights[i])));
  }

  // Lengths of a key that are spread like N(1, 1/2), the same ones every time: Box-Muller on evenly spread points.
  const lengths = Array.from({ length: LENGTHS }, (_, i) => {
    return 1 + Math.sqrt(-Math.log((i + 0.5) / LENGTHS)) * Math.cos(Math.PI * (Math.sqrt(5) - 1) * i);
  });

  // For each length of the first key: its weight among the first two.
  function noisyWeights(queries, keys) {
    const size = Math.hypot(...keys[0]) || 1;
    return lengths.map((length) => {
      const [a, b] = meanWeights(queries, [keys[0].map((one) => (one * length) / size), ...keys.slice(1)]);
      return a / (a + b);
    });
  }

  const part = (name) => document.getElementById(`lab-${name}`);
  const [experiment, beta, plane] = ["experiment", "beta", "plane"].map(part);
  let points = []; // {name, says, kind, at: [x, y], handle}
  const placesOf = (kind) => points.filter((one) => one.kind.startsWith(kind)).map((one) => one.at);

  function begin() {
    const { beta: strength, queries, about } = EXPERIMENTS[experiment.value];
    const several = queries.length > 1;
    points = [
      ...queries.map((at, i) => ({ name: several ? `q${i + 1}` : "q", says: several ? `query of head ${i + 1}` : "query", kind: `query-${i + 1}`, at })),
      ...KEYS.map((at, i) => ({ name: NAMES[i], says: `key ${NAMES[i]}`, kind: "key", at })),
    ];
    for (const point of points) point.handle = handleOf(point);
    plane.replaceChildren(plane.firstElementChild, ...points.map((one) => one.handle));
    beta.value = strength;
    part("about").textContent = about;
    show();
  }

  function handleOf(point) {
    const handle = Object.assign(document.createElement("button"), { type: "button", className: `handle ${point.kind}`, textContent: point.name });
    handle.setAttribute("aria-describedby", "lab-help");
    handle.addEventListener("pointerdown", (event) => handle.setPointerCapture(event.pointerId));
    handle.addEventListener("pointermove", (event) => {
      if (!handle.hasPointerCapture(event.pointerId)) return;
      const { left, top, width, height } = plane.firstElementChild.getBoundingClientRect();
      move(point, [REACH * ((2 * (event.clientX - left)) / width - 1), REACH * (1 - (2 * (event.clientY - top)) / height)]);
    });
    handle.addEventListener("keydown", (event) => {
      const direction = ARROWS[event.key];
      if (!direction) return;
      event.preventDefault(); // the page stays where it is
      move(point, point.at.map((one, i) => one + (event.shiftKey ? 5 : 1) * STEP * direction[i]), point);
    });
    return handle;
  }

  function move(point, to, named) {
    point.at = to.map((one) => Math.round(100 * Math.max(-REACH, Math.min(REACH, one))) / 100);
    show(named);
  }

  // Draws everything; a point that was moved by the keyboard is named in the finding, which is read aloud.
  function show(named = null) {
    const [strength, keys] = [beta.valueAsNumber, placesOf("key")];
    const queries = placesOf("query").map((at) => at.map((x) => strength * x));
    const weights = meanWeights(queries, keys);
    part("beta-value").textContent = strength.toFixed(1);
    plane.firstElementChild.innerHTML = `<path class="axis" d="M-${REACH} 0H${REACH}M0-${REACH}V${REACH}"/>${points
      .map(({ kind, at: [x, y] }) => `<path class="${kind}" d="M0 0L${x} ${-y}"/>`).join("")}`;
    for (const { handle, says, at: [x, y] } of points) {
      handle.style.left = `${(50 * (x + REACH)) / REACH}%`;
      handle.style.top = `${(50 * (REACH - y)) / REACH}%`;
      handle.setAttribute("aria-label", `${says}: ${x.toFixed(2)}, ${y.toFixed(2)}`);
    }
    part("output").innerHTML = drawnOutput(weights);
    const place = named && `${named.says[0].toUpperCase()}${named.says.slice(1)} at ${named.at.map((one) => one.toFixed(2)).join(", ")}. `;
    part("finding").textContent = `${place ?? ""}${findingOf(weights)}`;
    showTable(queries, keys, weights);
    part("lengths").hidden = !EXPERIMENTS[experiment.value].noisy;
    if (!part("lengths").hidden) showLengths(noisyWeights(queries, keys));
  }

  // What the output is, in a sentence.
  function findingOf(weights) {
    const order = weights.map((weight, i) => ({ weight, name: NAMES[i] })).sort((one, other) => other.weight - one.weight);
    const [first, second] = order;
    const but = (rest) => (rest < 0.0005 ? "" : `, except for ${percent(rest)} of the weight`);
    if (first.weight > 0.9) return `The output is the value of ${first.name}${but(1 - first.weight)}.`;
    if (first.weight - second.weight < 0.05 && first.weight + second.weight > 0.9) {
      return `The output is the mean of the values of ${[first.name, second.name].sort().join(" and ")}${but(1 - first.weight - second.weight)}.`;
    }
    return `The output mixes the values: ${order.map(({ name, weight }) => `${name} ${percent(weight, 0)}`).join(", ")}.`;
  }

  function drawnOutput(weights) {
    const [x, y] = [0, 1].map((axis) => weights.reduce((sum, weight, i) => sum + weight * VALUES[i][axis], 0));
    const lines = VALUES.map(([left, up], i) => `<path class="share" d="M${left} ${-up}L${x} ${-y}" stroke-width="${0.12 * weights[i]}"/>`);
    const corners = VALUES.map(([left, up], i) => `<circle class="value" cx="${left}" cy="${-up}" r=".16"/><text x="${left}" y="${-up}">${NAMES[i]}</text>`);
    return `${lines.join("")}${corners.join("")}<circle class="output" cx="${x}" cy="${-y}" r=".09"/>`;
  }

  function showTable(queries, keys, weights) {
    const heads = queries.map((query) => softmaxWeights(query, keys));
    const several = queries.length > 1;
    const titles = several ? [...heads.map((_, i) => `Head ${i + 1}`), "Mean weight"] : ["Score", "Weight"];
    const columns = several ? [...heads, weights] : [scoresOf(queries[0], keys), weights];
    const head = titles.map((title) => `<th scope="col" class="number">${title}</th>`);
    const rows = weights.map((weight, i) => `<tr><th scope="row">${NAMES[i]}</th>${columns.map((one) => `<td class="number">${one[i].toFixed(3)}</td>`).join("")}<td><div class="bar" style="width: ${percent(weight)}"></div></td></tr>`);
    part("weights").innerHTML = `<thead><tr><th scope="col">Key</th>${head.join("")}<td></td></tr></thead><tbody>${rows.join("")}</tbody>`;
  }

  // A histogram of the weight of a, for many lengths of its key.
  function showLengths(shares) {
    const counts = Array(BINS).fill(0);
    for (const share of shares) counts[Math.min(BINS - 1, Math.floor(share * BINS))] += 1;
    const bars = counts.map((count) => (5.8 * count) / Math.max(...counts));
    const deviation = Math.sqrt(mean(shares.map((one) => (one - mean(shares)) ** 2)));
    part("lengths").querySelector("svg").innerHTML = `${bars.map((height, i) => `<rect x="${i + 0.05}" y="${6 - height}" width=".9" height="${height}"/>`).join("")}
      <path class="axis" d="M0 6H${BINS}"/><text x="0" y="6.8" class="start">0</text><text x="${BINS / 2}" y="6.8">0.5</text><text x="${BINS}" y="6.8" class="end">1</text>`;
    part("lengths-words").textContent = `Weight of a among a and b, for ${LENGTHS} lengths of its key from N(1, 1/2): mean ${mean(shares).toFixed(2)}, standard deviation ${deviation.toFixed(2)}.`;
  }

  experiment.addEventListener("change", begin);
  part("reset").addEventListener("click", begin);
  beta.addEventListener("input", () => show());
  begin();
  part("live").hidden = false; // without scripts there is nothing to move
}
