// Means and intervals over seeds as the lab computes them: Student t, with the lab's own quantiles.

let settings = { quantiles: [], level: 0.95, alpha: 0.05, min_pairs: 5 };
export const setStatistics = (lab) => (settings = lab);

const sum = (values) => {
  // Kahan: the lab sums exactly, and the last digits should agree.
  let total = 0, rest = 0;
  for (const v of values) {
    const y = v - rest, t = total + y;
    rest = t - total - y;
    total = t;
  }
  return total;
};

export function estimate(values) {
  const n = values.length;
  const mean = sum(values) / n;
  if (n < 2) return { value: mean, low: null, high: null, n, method: "t", level: settings.level };
  const sd = Math.sqrt(sum(values.map((v) => (v - mean) ** 2)) / (n - 1));
  const half = (quantile(n - 1) * sd) / Math.sqrt(n);
  return { value: mean, low: mean - half, high: mean + half, n, method: "t", level: settings.level };
}

function quantile(df) {
  const q = settings.quantiles;
  if (df <= q.length) return q[df - 1];
  const z = 1.959963984540054; // beyond the table: the expansion of Cornish and Fisher
  return z + (z ** 3 + z) / (4 * df) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * df * df);
}

// The lab's paired test of two groups, for an export without a server: {a, b, seeds, each, evidence, p, says}.
export function compare(a, b, percent) {
  const seeds = [...a.keys()].filter((k) => b.has(k)).sort((x, y) => x - y);
  const each = seeds.map((k) => a.get(k) - b.get(k));
  const result = { a: a.size ? estimate([...a.values()]) : null, b: b.size ? estimate([...b.values()]) : null, seeds, each };
  if (seeds.length < 2) return { ...result, says: `too few seeds (${seeds.length})`, why: `shared seeds: ${seeds.length}, needed: at least 2; run more seeds.` };
  const e = estimate(each), n = seeds.length;
  const sd = Math.sqrt(sum(each.map((v) => (v - e.value) ** 2)) / (n - 1));
  const se = sd / Math.sqrt(n);
  const up = se ? tail(e.value / se, n - 1) : e.value ? Number(e.value < 0) : 0.5; // p for "A is above B"
  const p = Math.min(1, 2 * Math.min(up, 1 - up));
  const says = n < settings.min_pairs ? `too few seeds (${n} of ${settings.min_pairs})` : p >= settings.alpha ? "undecided" : up < 0.5 ? "A is higher" : "B is higher";
  return { ...result, evidence: { estimate: e, p: up, p_against: 1 - up, method: "paired t, one-sided", unit: percent ? "points" : "" }, p, says };
}

// P(T > t) of Student's t.
export function tail(t, df) {
  const half = 0.5 * beta(df / (df + t * t), df / 2, 0.5);
  return t >= 0 ? half : 1 - half;
}

// The regularised incomplete beta function, by its continued fraction (Lentz).
function beta(x, a, b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const front = Math.exp(gamma(a + b) - gamma(a) - gamma(b) + a * Math.log(x) + b * Math.log1p(-x));
  if (x > (a + 1) / (a + b + 2)) return 1 - beta(1 - x, b, a);
  let c = 1, d = 1 / keep(1 - ((a + b) * x) / (a + 1)), f = d;
  for (let m = 1; m <= 500; m++) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / keep(1 + even * d);
    c = keep(1 + even / c);
    f *= d * c;
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / keep(1 + odd * d);
    c = keep(1 + odd / c);
    f *= d * c;
    if (Math.abs(d * c - 1) < 1e-15) break;
  }
  return (front * f) / a;
}

const keep = (v) => (Math.abs(v) < 1e-300 ? 1e-300 : v);

// log Γ, Lanczos.
function gamma(z) {
  const g = [676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7];
  if (z < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * z)) - gamma(1 - z);
  let x = 0.99999999999980993;
  g.forEach((v, i) => (x += v / (z + i)));
  const t = z + 6.5;
  return 0.5 * Math.log(2 * Math.PI) + (z - 0.5) * Math.log(t) - t + Math.log(x);
}
