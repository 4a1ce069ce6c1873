"use strict";
// Responses that are numbers: what a draw predicts, and how a new observation is distributed, both in the network's own scale.
const responses = (() => {
  function erf(x) {
    const a = Math.abs(x);
    if (a > 6) return Math.sign(x);
    if (a < 2.5) {
      let term = x, sum = x;
      for (let n = 1; n < 60; n++) { term *= -x * x / n; sum += term / (2 * n + 1); }
      return 2 / Math.sqrt(Math.PI) * sum;
    }
    let tail = a;
    for (let k = 60; k > 0; k--) tail = a + (k / 2) / tail;
    return Math.sign(x) * (1 - Math.exp(-a * a) / (Math.sqrt(Math.PI) * tail));
  }
  const normalBelow = (z) => 0.5 * (1 + erf(z / Math.SQRT2));

  const lanczos = [676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
  function logGamma(x) {
    if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
    const t = x + 6.5;
    const sum = lanczos.reduce((total, c, i) => total + c / (x + i), 0.99999999999980993);
    return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
  }

  const steps = 20000, tiny = 1e-300, close = 1e-13;
  // A continued fraction by Lentz's method; `term(n)` gives its n-th numerator and denominator.
  function fraction(first, term) {
    let value = first || tiny, c = value, d = 0;
    for (let n = 1; n < steps; n++) {
      const [a, b] = term(n);
      d = 1 / (b + a * d || tiny); c = b + a / c || tiny;
      value *= c * d;
      if (Math.abs(c * d - 1) < close) break;
    }
    return value;
  }

  // The share of a gamma distribution of shape a and scale 1 below x.
  function gammaBelow(a, x) {
    if (!(x > 0)) return 0;
    const front = Math.exp(a * Math.log(x) - x - logGamma(a));
    if (x < a + 1) {
      let term = 1 / a, sum = term;
      for (let n = 1; n < steps && term > close * sum; n++) { term *= x / (a + n); sum += term; }
      return front * sum;
    }
    return 1 - front / fraction(x + 1 - a, (n) => [-n * (n - a), x + 2 * n + 1 - a]);
  }

  // The share of a beta(a, b) distribution below x.
  function betaBelow(a, b, x) {
    if (!(x > 0)) return 0;
    if (!(x < 1)) return 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - betaBelow(b, a, 1 - x);
    const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x)) / a;
    return front / fraction(1, (n) => {
      const m = Math.floor(n / 2);
      const top = n % 2 ? -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1)) : m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m));
      return [top * x, 1];
    });
  }

  const exps = (out) => Array.from(out, Math.exp), half = (list) => list[list.length / 2];
  // points: of one draw, one for each response. below: P(Y <= y) of the first response; spread: how wide it is, roughly.
  const families = {
    "normal": {
      points: (out) => Array.from(out),
      below: (out, phi) => (y) => normalBelow((y - out[0]) / Math.sqrt(phi[0])),
      spread: (out, phi) => Math.sqrt(phi[0]),
    },
    "student-t": {
      points: (out) => Array.from(out),
      below: (out, phi) => (y) => {
        const z = (y - out[0]) / phi[0], df = 2 + half(phi), tail = betaBelow(df / 2, 0.5, df / (df + z * z)) / 2;
        return z < 0 ? tail : 1 - tail;
      },
      spread: (out, phi) => phi[0],
    },
    "heteroscedastic": {
      points: (out) => Array.from(out.slice(0, out.length / 2)),
      below: (out) => (y) => normalBelow((y - out[0]) / Math.exp(half(out) / 2)),
      spread: (out) => Math.exp(half(out) / 2),
    },
    "poisson": {
      points: exps, support: "counts",
      below: (out) => (y) => (y < 0 ? 0 : 1 - gammaBelow(y + 1, Math.exp(out[0]))),
    },
    "negative-binomial": {
      points: exps, support: "counts",
      below: (out, phi) => (y) => (y < 0 ? 0 : betaBelow(phi[0], y + 1, phi[0] / (phi[0] + Math.exp(out[0])))),
    },
    "gamma": {
      points: exps, support: "positive",
      below: (out, phi) => (y) => gammaBelow(phi[0], phi[0] * y / Math.exp(out[0])),
      spread: (out, phi) => 1 / Math.sqrt(phi[0]),
    },
    "lognormal": {
      points: exps, support: "positive", median: true,
      below: (out, phi) => (y) => normalBelow((Math.log(y) - out[0]) / Math.sqrt(phi[0])),
      spread: (out, phi) => Math.sqrt(phi[0]),
    },
    "weibull": {
      points: (out, noise) => Array.from(out, (v, k) => Math.exp(v + Math.log(Math.LN2) / Math.exp(noise.log[k]))),
      support: "positive", median: true,
      below: (out, phi) => (y) => -Math.expm1(-Math.exp(phi[0] * (Math.log(y) - out[0]))),
      spread: (out, phi) => 1 / phi[0],
    },
  };

  const average = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

  // Below which number an observation lies with probability `share`: the averaged distribution function, inverted.
  function quantile(family, outs, phis, share) {
    const each = outs.map((out, k) => family.below(out, phis[k])), under = (y) => average(each.map((below) => below(y))) < share;
    if (family.support === "counts") {
      let low = -1, high = 1;
      while (under(high)) { low = high; high *= 2; }
      while (high - low > 1) { const middle = Math.floor((low + high) / 2); if (under(middle)) low = middle; else high = middle; }
      return high;
    }
    const to = family.support === "positive" ? Math.exp : (v) => v, starts = outs.map((out) => out[0]);
    let reach = 12 * Math.max(...outs.map((out, k) => family.spread(out, phis[k])));
    let low = Math.min(...starts) - reach, high = Math.max(...starts) + reach;
    while (!under(to(low))) { low -= reach; reach *= 2; }
    while (under(to(high))) { high += reach; reach *= 2; }
    for (let i = 0; i < 60; i++) { const middle = (low + high) / 2; if (under(to(middle))) low = middle; else high = middle; }
    return to((low + high) / 2);
  }

  return { erf, families, quantile, average };
})();
