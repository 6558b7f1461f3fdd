// Every run of the lab as a plain object, kept up to date; and the words that filter them.

import { STATIC, get } from "./data.js";
import { onChange } from "./live.js";

// What is known about a run beside its specification: fields that do not distinguish groups of seeds.
export const BESIDE = new Set(["run", "state", "reason", "seconds", "steps", "device", "torch", "started", "share", "left", "weights", "group", "study", "scale", "arm", "seed"]);

const FIRST = 120; // more than a screen holds

const rows = new Map();
const listeners = new Set();
let version = -1;
let loading = null;
let complete = false;
let total = 0; // runs in the lab, where only the first screen of them is here

export const all = () => [...rows.values()];
export const find = (key) => rows.get(key);
export const isComplete = () => complete;
export const count = () => Math.max(total, rows.size);
export const isWhole = () => version >= 0;
export const stamp = () => version; // another number when any row changed
export const onRows = (tell) => (listeners.add(tell), () => listeners.delete(tell));

export function decode({ keys, columns }, name = "run") {
  // What all rows share is written once, in what they inherit from: a hundred thousand rows are there in a third of the time.
  const shared = {}, own = [];
  for (const [field, column] of Object.entries(columns)) {
    if ("all" in column) shared[field] = column.all;
    else own.push([field, column.codes, column.values]);
  }
  function Row(key) { this[name] = key; }
  Row.prototype = shared;
  return keys.map((key, i) => {
    const row = new Row(key);
    for (const [field, codes, values] of own) if (codes[i] >= 0) row[field] = values[codes[i]];
    return row;
  });
}

export async function load() {
  if (version >= 0 && (STATIC || complete)) return;
  loading = loading || whole().finally(() => (loading = null));
  await loading;
}

// The runs that started last are there at once; the whole list, which may be long, follows and tells its listeners.
export async function loadSoon() {
  if (version >= 0 || loading || STATIC) return load();
  const first = await get("runs", { newest: FIRST });
  if (version < 0 && !loading) {
    for (const row of decode(first)) rows.set(row.run, row);
    total = first.total;
    complete = first.complete;
  }
  if (total <= rows.size) return load();
  // After a frame, so that what is there is seen before the long list is read.
  requestAnimationFrame(() => setTimeout(() => load().then(() => { for (const tell of [...listeners]) tell(); }, () => {})));
}

// The whole list may be of a moment ago; what changed since then is asked for at once.
async function whole() {
  await refresh(-1);
  if (!STATIC) await refresh(version);
}

async function refresh(since) {
  const changes = await get("runs", since >= 0 ? { since } : {});
  if (since < 0) { rows.clear(); total = 0; }
  for (const key of changes.gone) rows.delete(key);
  for (const row of decode(changes)) rows.set(row.run, row);
  version = changes.version;
  complete = changes.complete;
  return changes.keys.length + changes.gone.length;
}

onChange(async (now, restarted) => {
  if (version < 0 || loading) return;
  try {
    const was = complete;
    loading = refresh(restarted || now.version < version ? -1 : version);
    const changed = await loading;
    if (changed || complete !== was) for (const tell of [...listeners]) tell();
  } catch { /* the banner says it */ } finally {
    loading = null;
  }
});

// -- filters: words, field:value, field:a,b, field:1..8, field>8, -anything

export function words(query) {
  return [...query.matchAll(/-?(?:[^\s"]+|"[^"]*")+/g)].map((m) => m[0]);
}

export function filter(query) {
  const tests = words(query).map(test);
  return (row) => tests.every((t) => t(row));
}

const same = (value, wanted) => {
  if (value === undefined || value === null) return wanted === "";
  return String(value).toLowerCase() === wanted || (typeof value === "number" && wanted !== "" && Number(wanted) === value);
};

function test(word) {
  if (word.length > 1 && word.startsWith("-")) {
    const inner = test(word.slice(1));
    return (row) => !inner(row);
  }
  const parts = /^([A-Za-z_]\w*)(:|>=|<=|>|<|=)(.*)$/.exec(word);
  if (!parts) {
    const plain = word.replace(/"/g, "").toLowerCase();
    return holding(plain);
  }
  const [, field, sign] = parts;
  const operand = parts[3].replace(/"/g, "").toLowerCase();
  if (sign === ":" || sign === "=") {
    const range = /^(-?[\d.e+-]*)\.\.(-?[\d.e+-]*)$/.exec(operand);
    if (range) {
      const low = range[1] === "" ? -Infinity : Number(range[1]), high = range[2] === "" ? Infinity : Number(range[2]);
      return (row) => typeof row[field] === "number" && row[field] >= low && row[field] <= high;
    }
    const options = operand.includes("*") ? null : operand.split(",");
    if (options) return (row) => options.some((w) => same(row[field], w));
    const pattern = new RegExp(`^${operand.split("*").map((t) => t.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`);
    return (row) => pattern.test(String(row[field] ?? "").toLowerCase());
  }
  const limit = Number(operand);
  const compare = { ">": (v) => v > limit, "<": (v) => v < limit, ">=": (v) => v >= limit, "<=": (v) => v <= limit }[sign];
  return (row) => typeof row[field] === "number" && compare(row[field]);
}

// Rows have few values that differ: each value is looked into once, and what all rows share once for all of them.
function holding(word) {
  const matchByValue = new Map(), holds = (value) => {
    if (!matchByValue.has(value)) matchByValue.set(value, String(value).toLowerCase().includes(word));
    return matchByValue.get(value);
  };
  const shared = new Map(), inherits = (row) => {
    const from = Object.getPrototypeOf(row);
    if (!shared.has(from)) shared.set(from, Object.values(from).some(holds));
    return shared.get(from);
  };
  return (row) => inherits(row) || Object.keys(row).some((name) => (name === "run" ? row.run.includes(word) : holds(row[name])));
}

export const quote = (value) => (/[\s",:]/.test(String(value)) ? `"${value}"` : String(value));

// -- which fields distinguish runs

export const varying = (list, skip) => tally(list, skip).map(([name]) => name);

// The same, those that most runs have first: a list of several studies shows few empty columns.
export const common = (list, skip) => tally(list, skip).sort((a, b) => b[1].n - a[1].n).map(([name]) => name);

function tally(list, skip = new Set()) {
  const valuesByField = new Map();
  for (const row of list) {
    for (const name in row) {
      if (skip.has(name)) continue;
      let values = valuesByField.get(name);
      if (!values) valuesByField.set(name, (values = { set: new Set(), n: 0 }));
      values.n += 1;
      if (values.set.size < 200) values.set.add(row[name]);
    }
  }
  return [...valuesByField].filter(([, v]) => v.set.size > 1 || v.n < list.length);
}

export function label(row, fields) {
  const name = row.arm || row.model || row.run;
  const more = fields.filter((f) => f !== "model" && f !== "data" && row[f] !== undefined).map((f) => `${f} ${row[f]}`);
  return [name, ...more].join(", ");
}
