// Axes: from numbers to places on the page and back, and where the ticks stand.

export function linear([low, high], [from, to]) {
  const k = (to - from) / (high - low || 1);
  const at = (v) => from + (v - low) * k;
  at.ticks = (n) => nice(low, high, n);
  at.log = null;
  at.domain = [low, high];
  return at;
}

export function logarithmic([low, high], [from, to], base = 10) {
  const into = (v) => Math.log(v);
  const k = (to - from) / (into(high) - into(low) || 1);
  const at = (v) => from + (into(Math.max(v, 1e-300)) - into(low)) * k;
  at.ticks = (n) => powers(low, high, n, base);
  at.log = base;
  at.domain = [low, high];
  return at;
}

export function nice(low, high, n = 5) {
  const step0 = (high - low) / Math.max(1, n);
  if (!(step0 > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(step0));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((m) => m >= step0 * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function powers(low, high, n, base) {
  const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
  const last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
  const all = [];
  for (let i = first; i <= last; i++) all.push(base ** i);
  const every = Math.max(1, Math.ceil(all.length / n));
  const selected = all.filter((_, i) => i % every === 0);
  if (selected.length >= 3) return selected;
  // Less than a few powers: 1, 2, 5 of each decade.
  const fine = [];
  for (let i = Math.floor(Math.log10(low)); i <= Math.ceil(Math.log10(high)); i++) {
    for (const m of [1, 2, 5]) {
      const v = m * 10 ** i;
      if (v >= low * 0.999 && v <= high * 1.001) fine.push(Number(v.toPrecision(6)));
    }
  }
  return fine.length >= 2 ? fine : nice(low, high, n).filter((v) => v > 0);
}

// The y range: all seeds and means; intervals too, but one of two seeds may not flatten all the rest (as in the report).
export function span(lines, more, { log = false, zero = false, share = false, whole = false } = {}) {
  const ok = (v) => Number.isFinite(v) && (v > 0 || !log);
  const values = [...lines.flatMap((l) => [...l.estimates.map((e) => e.value), ...l.seeds.flat()]), ...more].filter(ok);
  if (!values.length) return null;
  const into = log ? Math.log : (v) => v;
  const back = log ? Math.exp : (v) => v;
  const ends = lines.flatMap((l) => l.estimates.flatMap((e) => [e.low, e.high])).filter((v) => v !== null && ok(v)).map(into);
  const low = into(smallest(values)), high = into(largest(values));
  const reach = whole ? Infinity : 0.35 * (high - low) || 0.1 * Math.abs(high) || 0.5;
  let bottom = Math.max(low - reach, smallest([low, ...ends]));
  let top = Math.min(high + reach, largest([high, ...ends]));
  if (zero) [bottom, top] = [Math.min(0, bottom), Math.max(0, top)];
  const pad = 0.05 * (top - bottom) || 0.1 * Math.abs(high) || 0.5;
  if (!(zero && bottom === 0)) bottom -= pad;
  if (!(zero && top === 0)) top += pad;
  if (share && !log && smallest(values) >= 0 && largest(values) <= 1) {
    bottom = Math.max(bottom, zero ? 0 : -0.02);
    top = Math.min(top, 1.02);
  }
  return [back(bottom), back(top)];
}

export const smallest = (values) => values.reduce((a, b) => (b < a ? b : a), Infinity);
export const largest = (values) => values.reduce((a, b) => (b > a ? b : a), -Infinity);
