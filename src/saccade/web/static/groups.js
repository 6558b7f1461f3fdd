// Groups: runs that differ in nothing but the seed. Mean and interval of any metric, against any field; any two compared.

import { badge, h, put, s } from "./dom.js";
import { STATIC, get, post } from "./data.js";
import { finite, interval, number, p as asP, plural, scaled } from "./format.js";
import { colour, CYCLE } from "./colours.js";
import { figure } from "./figure.js";
import { linear, smallest, largest } from "./scales.js";
import * as store from "./store.js";
import { compare as compareHere, estimate } from "./stats.js";

const MOST_LINES = 14;
const PREFERRED = ["accuracy@split", "accuracy"];

const parseAt = (text) => Object.fromEntries((text || "").split(";").filter(Boolean).map((t) => [t.slice(0, t.indexOf(":")), t.slice(t.indexOf(":") + 1)]));
const writeAt = (at) => Object.entries(at).map(([k, v]) => `${k}:${v}`).join(";");
const shownName = (id) => { const [name, by] = id.split("@"); return by ? `${name}, by ${by.split("+").join(", ")}` : name; };

export function groups(root, { query, go, context }) {
  let rows = [], measures = null, token = 0;
  const controls = h("div.controls", {}), plot = h("div", {}), against = h("section.against", {}), table = h("div", {});
  put(root, h("p.wait", {}, "Reading every measurement…"));

  async function update(selected) {
    rows = selected;
    const ownToken = ++token;
    try {
      measures = await get("measures");
    } catch (error) {
      if (ownToken === token) put(root, h("p.note", {}, error.message));
      return;
    }
    if (ownToken !== token) return;
    const metricNames = Object.keys(measures);
    if (!metricNames.length) {
      put(root, h("div.empty", {}, h("h2", {}, "Nothing measured yet"), h("p", {}, "Groups need finished runs with measurements; probes run at the end of each training.")));
      return;
    }
    if (plot.parentElement !== root) put(root, controls, plot, against, table);
    await draw(ownToken);
  }

  function settings() {
    const q = query();
    const metricNames = Object.keys(measures);
    const metric = metricNames.includes(q.metric) ? q.metric : PREFERRED.find((m) => metricNames.includes(m)) || metricNames[0];
    const requested = parseAt(q.at), fields = measures[metric].at;
    const x = q.x ?? guessX(metric);
    const at = {};
    for (const [name, values] of Object.entries(fields)) {
      if (name === x) continue;
      at[name] = requested[name] !== undefined && values.some((v) => String(v) === requested[name]) ? requested[name] : String(preferred(name, values));
    }
    return { metric, x: x || "", at };
  }

  const preferred = (name, values) => (name === "budget_share" ? values[values.length - 1] : values.includes("ood") ? "ood" : values.includes("test") ? "test" : values[values.length - 1]);

  function guessX(metric) {
    const vary = store.varying(rows, store.BESIDE).filter((f) => rows.some((r) => typeof r[f] === "number"));
    if (vary.length) return vary.includes("backgrounds") ? "backgrounds" : vary.includes("p") ? "p" : vary[0];
    return Object.keys(measures[metric].at).find((f) => f !== "budget_share" && measures[metric].at[f].length > 1 && measures[metric].at[f].every((v) => typeof v === "number")) || "";
  }

  async function draw(ownToken) {
    const set = settings();
    drawControls(set);
    let measurement;
    try {
      measurement = await get(`measure/${set.metric}`, set.at);
    } catch (error) {
      put(plot, h("p.note", {}, error.message));
      return;
    }
    if (ownToken !== token) return;
    const gathered = gather(measurement, set);
    drawFigure(gathered, set);
    drawTable(gathered, set);
    drawAgainst(gathered, set);
    root.dataset.groups = String(gathered.groups.length);
  }

  // One entry per group and value of x: numbers by seed.
  function gather(measurement, set) {
    const chosen = new Map(rows.map((r) => [r.run, r]));
    const conditions = store.decode({ keys: measurement.keys, columns: measurement.columns });
    const by = new Map();
    let lowest = Infinity, highest = -Infinity, twice = 0;
    measurement.keys.forEach((key, i) => {
      const row = chosen.get(key), at = conditions[i];
      if (!row || row.seed === undefined) return;
      if (STATIC && Object.entries(set.at).some(([k, v]) => String(at[k]) !== v)) return;
      const x = set.x ? at[set.x] ?? row[set.x] : undefined;
      if (set.x && x === undefined) return;
      const value = measurement.values[i];
      const id = `${row.group}|${set.x && at[set.x] !== undefined ? x : ""}`;
      let one = by.get(id);
      if (!one) by.set(id, (one = { id, group: row.group, row, x, seeds: new Map(), runs: new Map() }));
      if (one.seeds.has(row.seed)) twice += 1;
      one.seeds.set(row.seed, value);
      one.runs.set(row.seed, key);
      lowest = Math.min(lowest, value);
      highest = Math.max(highest, value);
    });
    const list = [...by.values()];
    for (const one of list) one.estimate = estimate([...one.seeds.keys()].sort((a, b) => a - b).map((k) => one.seeds.get(k)));
    // Only what differs between groups of one arm (or model) has to be said beside its name.
    const kind = (row) => row.arm || row.model, kinds = new Map();
    for (const g of list) kinds.set(kind(g.row), [...(kinds.get(kind(g.row)) || []), g.row]);
    const apart = new Map([...kinds].map(([name, some]) => [name, telling(some, store.varying(some, new Set([...store.BESIDE, set.x])))]));
    const vary = [...new Set([...apart.values()].flat())];
    const total = new Map(), lost = new Map();
    for (const r of rows) {
      total.set(r.group, (total.get(r.group) || 0) + 1);
      if (["diverged", "failed", "timeout", "damaged"].includes(r.state)) lost.set(r.group, [...(lost.get(r.group) || []), r.state]);
    }
    for (const one of list) {
      one.name = nameOf(one.row, apart.get(kind(one.row)));
      one.missing = (lost.get(one.group) || []).length;
      one.why = one.missing ? summary(lost.get(one.group)) : "";
      one.waiting = total.get(one.group) - one.missing - one.seeds.size;
    }
    return { groups: list, vary, percent: lowest >= 0 && highest <= 1 && !/parameter|second|count|n_/.test(set.metric), twice };
  }

  // The fewest fields that distinguish the groups; how often training was watched only where no other field does.
  function telling(some, fields) {
    const chosenFields = [], apart = (names) => new Set(some.map((r) => JSON.stringify(names.map((f) => r[f] ?? null)))).size;
    for (const f of [...fields].sort((a, b) => (a === "watch") - (b === "watch"))) if (apart([...chosenFields, f]) > apart(chosenFields)) chosenFields.push(f);
    return chosenFields;
  }

  const summary = (states) => [...new Set(states)].map((st) => `${states.filter((t) => t === st).length} ${st}`).join(", ");

  function nameOf(row, vary) {
    const name = row.arm || row.model;
    const more = vary.filter((f) => f !== "model" && row[f] !== undefined).map((f) => (f === "data" ? row[f] : `${f} ${typeof row[f] === "number" ? number(row[f], 5) : row[f]}`));
    return [name, ...more].join(", ");
  }

  function drawControls(set) {
    const pick = (label, value, options, act, id) => h("label.pick", {}, h("span", {}, label), h("select", { id, onchange: (e) => { act(e.target.value); const focus = e.target.id; update(rows).then(() => document.getElementById(focus)?.focus()); } },
      options.map(([v, text]) => h("option", { value: v, selected: String(v) === String(value) }, text))));
    const metricNames = Object.keys(measures).filter((m) => measures[m].runs > 0);
    const numeric = store.varying(rows, store.BESIDE);
    const conditions = Object.entries(measures[set.metric].at).filter(([, values]) => values.length > 1).map(([name]) => name);
    const xs = [["", "nothing (a table)"], ...[...conditions, ...numeric].map((f) => [f, f])];
    put(controls,
      pick("metric", set.metric, metricNames.map((m) => [m, `${shownName(m)} (${plural(measures[m].runs, "run")})`]), (v) => go({ metric: v, at: "", x: undefined, a: "", b: "" }), "pick-metric"),
      pick("against", set.x, xs, (v) => go({ x: v }), "pick-x"),
      Object.entries(measures[set.metric].at).filter(([name, values]) => name !== set.x && values.length > 1).map(([name, values]) =>
        pick(name === "budget_share" ? "share of the budget" : name, set.at[name], values.map((v) => [String(v), name === "budget_share" ? `${100 * v} %` : String(v)]), (v) => go({ at: writeAt({ ...set.at, [name]: v }) }), `pick-${name}`)));
  }

  function lines(gathered) {
    const by = new Map();
    for (const g of gathered.groups) {
      if (!by.has(g.name)) by.set(g.name, []);
      by.get(g.name).push(g);
    }
    return [...by].map(([name, list]) => [name, list.sort((a, b) => (typeof a.x === "number" && typeof b.x === "number" ? a.x - b.x : String(a.x).localeCompare(String(b.x))))]);
  }

  function drawFigure(gathered, set) {
    if (!set.x || !gathered.groups.length) return put(plot, gathered.groups.length ? null : h("p.note", {}, "No run of this selection has this measurement."));
    const all = lines(gathered), few = all.slice(0, MOST_LINES);
    const numbers = gathered.groups.every((g) => typeof g.x === "number");
    const categories = numbers ? [] : [...new Set(gathered.groups.map((g) => String(g.x)))];
    const families = few.map(([, list]) => context.lab.models?.[list[0].row.model] || "other"), many = new Set(families).size < 2;
    const before = families.map((f, i) => families.slice(0, i).filter((g) => g === f).length), of = (f) => families.filter((g) => g === f).length;
    // Colour is the family; lines of one family differ in shade and dash, or in colour when there is only one family.
    const figureLines = few.map(([name, list], i) => ({
      label: name, family: families[i], shade: 0.5, dash: ["solid", "dashed", "dotted", "dashdot"][(many ? Math.floor(i / CYCLE.length) : before[i]) % 4],
      ink: many ? CYCLE[i % CYCLE.length] : colour(families[i], of(families[i]) > 1 ? 0.25 + (0.6 * before[i]) / (of(families[i]) - 1) : 0.5),
      x: list.map((g) => (numbers ? g.x : categories.indexOf(String(g.x)))), estimates: list.map((g) => g.estimate),
      seeds: list.map((g) => [...g.seeds.keys()].sort((a, b) => a - b).map((k) => g.seeds.get(k))),
      missing: Math.max(...list.map((g) => g.missing)), why: list.map((g) => g.why).find(Boolean) || "",
    }));
    const distinct = [...new Set(gathered.groups.map((g) => g.x))].filter((v) => typeof v === "number").sort((a, b) => a - b);
    const spread = distinct.length > 2 && distinct[0] > 0 && distinct[distinct.length - 1] / distinct[0] >= 16;
    const title = `${shownName(set.metric).split(",")[0]} against ${set.x}`;
    const shared = { title, y_label: shownName(set.metric).split(",")[0], y_log: false, y_percent: gathered.percent, note: "" };
    const data = numbers
      ? { kind: "Curves", ...shared, panels: [{ title: "", lines: figureLines, x_label: set.x, x_log: spread ? 2 : null, x_down: false, marks: [], fits: [] }] }
      : { kind: "Bars", ...shared, categories, lines: figureLines, x_label: set.x, marks: [] };
    put(plot, figure({ name: "groups", title, data, told: title, csvText: () => csv(gathered, set) },
      { level: 2, caption: `${Object.entries(set.at).filter(([k, v]) => k !== "budget_share" || v !== "1").map(([k, v]) => `${k} ${v}`).join(", ")}${all.length > few.length ? `. ${all.length} lines; the first ${few.length} are drawn. Filter to choose.` : ""}` }));
  }

  function csv(gathered, set) {
    const cell = (v) => (/[",\n]/.test(String(v ?? "")) ? `"${String(v).replace(/"/g, '""')}"` : String(v ?? ""));
    const head = ["group", ...gathered.vary, ...(set.x ? [set.x] : []), "value", "low", "high", "n", "missing", "seeds"];
    const body = gathered.groups.map((g) => [g.name, ...gathered.vary.map((f) => g.row[f]), ...(set.x ? [g.x] : []), g.estimate.value, g.estimate.low, g.estimate.high, g.estimate.n, g.missing, [...g.seeds.values()].join(" ")]);
    return [head, ...body].map((r) => r.map(cell).join(",")).join("\n") + "\n";
  }

  function drawTable(gathered, set) {
    const values = gathered.groups.flatMap((g) => [...g.seeds.values()]);
    const domain = [smallest(values), largest(values)];
    const q = query();
    const choose = (letter, id) => { go({ [letter]: q[letter] === id ? "" : id }); draw(token); };
    const list = [...gathered.groups].sort((a, b) => a.name.localeCompare(b.name) || (a.x > b.x ? 1 : -1)).slice(0, 400);
    put(table, h("h2", {}, plural(gathered.groups.length, "group"), " of seeds"),
      gathered.twice ? h("p.note", {}, "Some runs have several rows here; choose a condition that tells them apart.") : null,
      h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Groups" }, h("table.groups", { role: "table" }, // the roles: as cards on a narrow screen it is still a table to a screen reader
        h("thead", {}, h("tr", { role: "row" }, ["A", "B", "group", ...(set.x ? [set.x] : []), gathered.percent ? "mean [95 %] in %" : "mean [95 %]", "seeds", "each seed"].map((t) => h("th", { scope: "col", role: "columnheader" }, t)))),
        h("tbody", {}, list.map((g) => h("tr", { role: "row", class: q.a === g.id || q.b === g.id ? "chosen" : null },
          ["a", "b"].map((letter) => h(`td.ab.${letter}`, { role: "cell" }, h("button.ab-button", { type: "button", "aria-pressed": String(q[letter] === g.id), "aria-label": `${letter.toUpperCase()}: ${g.name}${set.x ? `, ${set.x} ${g.x}` : ""}`, onclick: () => choose(letter, g.id) }, letter.toUpperCase()))),
          h("th", { scope: "row", role: "rowheader" }, h("a", { href: context.address("run", [[...g.runs.values()][0]]) }, g.name)),
          set.x ? h("td.num.at", { role: "cell", data: { of: set.x } }, typeof g.x === "number" ? number(g.x, 5) : String(g.x)) : null,
          h("td.num.mean", { role: "cell" }, interval(g.estimate, gathered.percent)),
          h("td.n", { role: "cell" }, `${g.seeds.size}`, g.missing ? h("small.warn", {}, ` ${g.why}`) : null, g.waiting > 0 ? h("small", {}, ` ${g.waiting} to come`) : null),
          h("td.each", { role: "cell" }, strip(g, domain)))))),
      gathered.groups.length > list.length ? h("p.note", {}, `The first ${list.length} are listed; filter to choose.`) : null));
  }

  function drawAgainst(gathered, set) {
    const q = query();
    const a = gathered.groups.find((g) => g.id === q.a), b = gathered.groups.find((g) => g.id === q.b);
    if (!a && !b) return put(against, gathered.groups.length > 1 ? h("p.hint", {}, "Choose A and B in the table to compare two groups with the lab's own test.") : null);
    const name = (g) => (g ? `${g.name}${set.x ? `, ${set.x} ${typeof g.x === "number" ? number(g.x, 5) : g.x}` : ""}` : "choose one in the table");
    const result = h("div.result", {});
    put(against, h("div.ab-pair", {}, h("div", {}, h("i.letter", {}, "A"), h("span", {}, name(a)), a ? h("small", {}, interval(a.estimate, gathered.percent), gathered.percent ? " %" : "") : null), h("div", {}, h("i.letter", {}, "B"), h("span", {}, name(b)), b ? h("small", {}, interval(b.estimate, gathered.percent), gathered.percent ? " %" : "") : null)), result);
    if (!a || !b || a === b) return;
    const ownToken = token;
    ask(a, b, gathered, set).then((comparison) => ownToken === token && put(result, resultOf(comparison, gathered.percent)), (error) => put(result, h("p.note", {}, error.message)));
  }

  async function ask(a, b, gathered, set) {
    if (STATIC) return compareHere(a.seeds, b.seeds, gathered.percent);
    const at = (g) => (set.x && measures[set.metric].at[set.x] ? { ...set.at, [set.x]: String(g.x) } : set.at);
    if (JSON.stringify(at(a)) !== JSON.stringify(at(b))) return compareHere(a.seeds, b.seeds, gathered.percent); // two conditions of one run: numbers are already here
    return post("compare", { metric: set.metric, at: at(a), a: [...a.runs.values()], b: [...b.runs.values()], unit: gathered.percent ? "points" : "" });
  }

  function resultOf(comparison, percent) {
    const look = comparison.says.startsWith("too few") ? "few" : comparison.says === "undecided" ? "undecided" : "equivalent";
    if (!comparison.evidence) return [badge(comparison.says, "few", "…"), h("p", {}, comparison.why)];
    const e = comparison.evidence.estimate;
    return [
      h("div.difference", {}, h("small", {}, "A − B, paired on seeds"), h("b", {}, `${scaled(e.value, percent)}${percent ? " points" : ""}`), h("span", {}, finite(e.low) ? `[${scaled(e.low, percent)}, ${scaled(e.high, percent)}]` : "", ` n=${e.n}`)),
      strip({ seeds: new Map(comparison.seeds.map((k, i) => [k, comparison.each[i]])), estimate: e }, null, 220, 0),
      h("div", {}, badge(comparison.says, look, look === "few" ? "…" : look === "undecided" ? "?" : "≠"), h("p", {}, `p ${asP(comparison.p)} two-sided, ${comparison.evidence.method.replace(", one-sided", "")}`, comparison.evidence.seeds_needed ? `; about ${comparison.evidence.seeds_needed} seeds would show an effect of this size` : "", ". No correction for other comparisons.")),
    ];
  }

  return { update, close: () => (token += 1) };
}

export function strip(g, domain, width = 150, zero = null) {
  const values = [...g.seeds.values()], e = g.estimate;
  const ends = domain || [smallest([...values, e.low ?? e.value, zero ?? e.value]), largest([...values, e.high ?? e.value, zero ?? e.value])];
  const pad = 0.06 * (ends[1] - ends[0] || 1);
  const x = linear([ends[0] - pad, ends[1] + pad], [4, width - 4]), clamp = (v) => Math.max(2, Math.min(width - 2, x(v)));
  return s("svg.strip", { viewBox: `0 0 ${width} 22`, width, height: 22, role: "img", "aria-label": `seeds: ${values.map((v) => number(v, 3)).join(", ")}` },
    zero !== null ? s("line.zero", { x1: x(zero), x2: x(zero), y1: 1, y2: 21 }) : null,
    s("line.base", { x1: 2, x2: width - 2, y1: 11, y2: 11 }),
    finite(e.low) ? s("line.reach", { x1: clamp(e.low), x2: clamp(e.high), y1: 11, y2: 11 }) : null,
    values.map((v) => s("circle.seed", { cx: clamp(v), cy: 16.5, r: 1.7 })),
    s("circle.mean", { cx: clamp(e.value), cy: 11, r: 4 }));
}
