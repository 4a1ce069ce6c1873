"use strict";
// The network that is left, as a plain function of its inputs. `window.slabnet` is this object.
const slabnet = (() => {
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const floats = (text) => new Float32Array(bytes(text).buffer);
  const wholes = (text) => new Uint32Array(bytes(text).buffer);

  // mulberry32 and Box-Muller: small, seeded, good enough for a hundred draws.
  function generator(seed) {
    let state = (seed + 0x9e3779b9) >>> 0;
    const uniform = () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = state;
      t = Math.imul(t ^ (t >>> 15), t | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
    return { uniform, normal };
  }

  const { erf } = responses;
  const sigmoid = (v) => (v >= 0 ? 1 / (1 + Math.exp(-v)) : Math.exp(v) / (1 + Math.exp(v)));
  const below = (z) => 0.5 * (1 + erf(z / Math.SQRT2));
  const activations = {/* the table of activations */};

  function unpack(packed) {
    return packed.layers.map((layer) => {
      const blocks = layer.blocks.map((b) => ({ at: wholes(b.at), mu: floats(b.mu), sigma: floats(b.sigma), alpha: floats(b.alpha) }));
      const { at } = blocks[0];
      const from = Uint32Array.from(at, (v) => v % layer.inputs), to = Uint32Array.from(at, (v) => Math.floor(v / layer.inputs));
      return { outputs: layer.outputs, again: layer.again, blocks, from, to };
    });
  }

  // One network: for each layer the values of its weights and intercepts.
  const means = (layers) => layers.map((layer) => layer.blocks.map((b) => b.mu));
  function drawn(layers, random, structure) {
    return layers.map((layer) => layer.blocks.map((b) => Float32Array.from(b.mu, (mu, i) => {
      const value = mu + b.sigma[i] * random.normal();
      return structure && random.uniform() >= b.alpha[i] ? 0 : value;
    })));
  }

  // For each hidden layer the activation of each unit: one name for all, or a list of names for each layer.
  const functions = (layers, named) => layers.map((layer, depth) => Array.from({ length: layer.outputs },
    (_, unit) => activations[typeof named === "string" ? named : (named[depth] || [])[unit]]));

  function run(layers, values, x, acts) {
    let now = x;
    layers.forEach((layer, depth) => {
      const out = new Float64Array(layer.outputs), [weights, intercepts] = values[depth];
      if (layer.again) now = [...now, ...x];  // the units, and the inputs again behind them
      if (intercepts) layer.blocks[1].at.forEach((unit, i) => { out[unit] += intercepts[i]; });
      for (let i = 0; i < weights.length; i++) out[layer.to[i]] += weights[i] * now[layer.from[i]];
      if (depth < layers.length - 1) for (let i = 0; i < out.length; i++) out[i] = acts[depth][i](out[i]);
      now = out;
    });
    return now;
  }

  const heads = {
    ordinal: (out, { cuts }) => {  // without differences of nearly equal numbers
      const inner = (k) => (k > 0 && k < cuts.length ? -Math.expm1(cuts[k - 1] - cuts[k]) : 1);
      return Array.from({ length: cuts.length + 1 }, (_, k) =>
        (k < cuts.length ? sigmoid(cuts[k] - out[0]) : 1) * (k > 0 ? sigmoid(out[0] - cuts[k - 1]) : 1) * inner(k));
    },
    sigmoid: (out) => { const p = sigmoid(out[0]); return [1 - p, p]; },
    softmax: (out) => {
      const top = Math.max(...out), parts = Array.from(out, (v) => Math.exp(v - top));
      const sum = parts.reduce((a, b) => a + b, 0);
      return parts.map((v) => v / sum);
    },
  };

  const entropy = (p) => p.reduce((sum, v) => (v > 0 ? sum - v * Math.log(v) : sum), 0);

  function quantile(values, share) {
    const sorted = [...values].sort((a, b) => a - b), place = share * (sorted.length - 1), low = Math.floor(place);
    return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
  }

  function network(packed) {
    const layers = unpack(packed), acts = functions(layers, packed.activation), cache = new Map();
    const family = responses.families[packed.head], points = family ? (out) => family.points(out, packed.noise) : null;
    const head = points || ((out) => heads[packed.head](out, packed));
    // Counts of a row that was exposed longer, in an area or to more people: their log rate is higher.
    const exposed = (out, exposure) => (packed.rate ? out.map((v) => v + Math.log(packed.rate * exposure)) : out);
    const at = (x, exposure = 1) => head(exposed(run(layers, means(layers), x, acts), exposure));

    // Draw r is the same network for every x, as in Python's `predict`.
    function networks(draws, structure, seed) {
      const key = `${draws} ${structure} ${seed}`;
      if (!cache.has(key)) {
        const random = generator(seed);
        cache.set(key, Array.from({ length: draws }, () => ({
          values: drawn(layers, random, structure),
          phi: (packed.noise ? packed.noise.log : []).map((log, k) => Math.exp(log + packed.noise.sd[k] * random.normal())),
        })));
      }
      return cache.get(key);
    }

    function predict(x, { draws = packed.draws, structure = false, seed = packed.seed, exposure = 1 } = {}) {
      const each = networks(draws, structure, seed);
      const outs = each.map((one) => exposed(run(layers, one.values, x, acts), exposure)), samples = outs.map(head);
      const mean = samples[0].map((_, k) => samples.reduce((sum, s) => sum + s[k], 0) / samples.length);
      if (packed.numbers) {
        const centres = samples.map((s) => s[0]), phis = each.map((one) => one.phi);
        const ofNew = (share) => responses.quantile(family, outs, phis, share);
        return {
          mean: family.median ? [ofNew(0.5), ...mean.slice(1)] : mean, samples,
          interval: [quantile(centres, 0.025), quantile(centres, 0.975)],
          predictive: [ofNew(0.025), ofNew(0.975)],
        };
      }
      const votes = mean.map(() => 0);
      samples.forEach((s) => { votes[s.indexOf(Math.max(...s))] += 1; });
      const total = entropy(mean), inside = samples.reduce((sum, s) => sum + entropy(s), 0) / samples.length;
      return { mean, votes, entropy: total, epistemic: Math.max(0, total - inside), samples };
    }
    return { at, predict };
  }

  // A drawing as the data have it: scaled so that its longer side fills the box, its centre of mass where the data have it.
  // `ink` is a square of `side` numbers from 0 to 1; the result has shape [height, width].
  function digest(ink, side, shape, box, centre) {
    const [height, width] = shape, out = new Float64Array(height * width);
    let left = side, right = -1, top = side, low = -1, mass = 0, mx = 0, my = 0;
    for (let y = 0; y < side; y++) for (let x = 0; x < side; x++) {
      const v = ink[y * side + x];
      if (v <= 0.05) continue;
      left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); low = Math.max(low, y);
      mass += v; mx += v * (x + 0.5); my += v * (y + 0.5);
    }
    if (mass === 0) return out;
    const wide = right - left + 1, tall = low - top + 1, scale = box / Math.max(wide, tall);
    const limit = (v, size, room) => Math.min(Math.max(v, 0), Math.max(room - size, 0));
    const ox = limit(centre[1] - (mx / mass - left) * scale, wide * scale, width);
    const oy = limit(centre[0] - (my / mass - top) * scale, tall * scale, height);
    const sums = new Float64Array((side + 1) * (side + 1)), row = side + 1;
    for (let y = 0; y < side; y++) for (let x = 0; x < side; x++)
      sums[(y + 1) * row + x + 1] = ink[y * side + x] + sums[y * row + x + 1] + sums[(y + 1) * row + x] - sums[y * row + x];
    const upTo = (x, y) => {  // ink above and left of a point between the pixels
      const a = Math.min(Math.max(x, 0), side), b = Math.min(Math.max(y, 0), side);
      const i = Math.min(Math.floor(a), side - 1), j = Math.min(Math.floor(b), side - 1), fx = a - i, fy = b - j;
      return (1 - fy) * ((1 - fx) * sums[j * row + i] + fx * sums[j * row + i + 1])
        + fy * ((1 - fx) * sums[(j + 1) * row + i] + fx * sums[(j + 1) * row + i + 1]);
    };
    for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
      const a = (x - ox) / scale + left, b = (y - oy) / scale + top, c = a + 1 / scale, d = b + 1 / scale;
      out[y * width + x] = Math.min(1, Math.max(0, (upTo(c, d) - upTo(a, d) - upTo(c, b) + upTo(a, b)) * scale * scale));
    }
    return out;
  }

  const data = JSON.parse(document.getElementById("data").textContent);
  return { data, network: data.network ? network(data.network) : null, digest, floats, erf };
})();
window.slabnet = slabnet;
