// Numbers and times as text: the same words on every page.

export const finite = (v) => typeof v === "number" && Number.isFinite(v);

export function number(v, digits = 4) {
  if (!finite(v)) return "–";
  if (Number.isInteger(v) && Math.abs(v) < 1e9) return v.toLocaleString("en-US");
  const size = Math.abs(v);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) {
    const [front, power] = v.toExponential(Math.min(2, digits - 1)).split("e");
    return `${Number(front)}×10${[...String(Number(power))].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("")}`;
  }
  return String(Number(v.toPrecision(digits)));
}

export function scaled(v, percent, digits = 1) {
  if (!finite(v)) return "–";
  return percent ? (100 * v).toFixed(digits) : number(v);
}

// As in "78.1 [77.0, 79.2]"; a single seed has no interval.
export function interval(e, percent, digits = 1) {
  if (!e) return "–";
  const value = scaled(e.value, percent, digits);
  if (e.method === "exact") return `${number(e.value)} (exact)`;
  if (!finite(e.low) || !finite(e.high)) return value;
  return `${value} [${scaled(e.low, percent, digits)}, ${scaled(e.high, percent, digits)}]`;
}

// A command as one types it where `saccade serve` was started.
export function inLab(command, lab) {
  if (lab.root === "lab") return command; // the default
  return `${command} --lab ${/^[\w@%+=:,./-]+$/.test(lab.root) ? lab.root : `'${lab.root.replaceAll("'", "'\\''")}'`}`;
}

export function p(value) {
  if (!finite(value)) return "–";
  return value < 0.001 ? "< 0.001" : value.toFixed(3);
}

export function duration(seconds) {
  if (!finite(seconds)) return "";
  if (seconds < 0.95) return `${(1000 * seconds).toFixed(0)} ms`;
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  if (seconds < 5400) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export function ago(time) {
  const seconds = Date.now() / 1000 - time;
  return seconds < 5 ? "now" : `${duration(seconds)} ago`;
}

// A value as it stands in an address; the server writes it the same way.
export const asText = (v) => String(v);

export function value(v) {
  if (v === null || v === undefined) return "";
  if (typeof v === "number") return number(v, 6);
  if (Array.isArray(v)) return v.map(value).join(", ");
  if (typeof v === "object") return Object.entries(v).map(([k, x]) => (x && typeof x === "object" && !Array.isArray(x) ? `${k} (${value(x)})` : `${k}: ${value(x)}`)).join(", ");
  return String(v);
}

export const plural = (n, one, many = one + "s") => `${n.toLocaleString("en-US")} ${n === 1 ? one : many}`;
