// Profiles: what models look at and what they are blind to, one beside another. saccade profile writes them into the lab.

import { h, put, empty, copyable, s } from "./dom.js";
import { get } from "./data.js";
import { duration, finite, inLab, number, plural, value } from "./format.js";
import { linear } from "./scales.js";
import { onChange } from "./live.js";

const SCALES = { percent: [100, 1, " %"], points: [100, 1, " points"], "of 4": [1, 2, " of 4"], share: [1, 3, ""], sides: [1, 3, ""], count: [1, 0, ""], milliseconds: [1, 2, " ms"] };
const INKS = ["var(--accent)", "var(--no)"];

export async function show(root, route, { follow, lab }) {
  let query = { ...route.query }, profiles = await get("profiles");
  draw();
  const off = onChange(async () => {
    try {
      const next = await get("profiles");
      if (JSON.stringify(next) !== JSON.stringify(profiles)) { profiles = next; draw(); }
    } catch { /* the banner says it */ }
  });
  return { title: "Profile", close: off, update: (next) => ((query = { ...next.query }), draw(), true) };

  function draw() {
    const head = h("header.head", {}, h("h1", {}, "Profile"), h("p.lead", {}, "What a model looks at and what it is blind to: one row per question, two models beside each other."));
    if (!profiles.length) {
      put(root, head, empty("No profile yet", h("p", {}, "One command measures any model: a run of this lab by its key, a registered name, a function in a file, a timm or transformers name."), copyable(inLab("saccade profile KEY", lab))));
      return;
    }
    const ids = profiles.map((p) => p.id);
    const a = ids.includes(query.a) ? query.a : ids[0], b = query.b === "" ? "" : ids.includes(query.b) ? query.b : ids.find((n) => n !== a) || "";
    const pick = (letter, now, none) => h("label.pick", {}, h("span", {}, `model ${letter.toUpperCase()}`), h("select", { id: `profile-${letter}`, onchange: (e) => { query = { ...query, [letter]: e.target.value }; follow("profile", [], query); draw(); document.getElementById(`profile-${letter}`).focus(); } },
      none ? h("option", { value: "", selected: !now }, "none") : null, profiles.map((p) => h("option", { value: p.id, selected: p.id === now }, `${p.name} (${p.id.split("-").pop()})`))));
    const chosen = [a, b].filter(Boolean).map((n) => profiles.find((p) => p.id === n)), fine = chosen.filter((p) => !p.error);
    put(root, head, h("div.controls", {}, pick("a", a), ids.length > 1 ? pick("b", b, true) : null),
      chosen.filter((p) => p.error).map((p) => h("p.note.bad", {}, p.error)),
      fine.length ? [unlike(fine), who(fine), h("h2.unseen", {}, "Questions and answers"), table(fine), h("p.quiet-note", {}, "Points with their 95 % intervals, percentages and shares from 0 to 100 %, differences around a dotted zero. Right then: the accuracy on the changed images."), skipped(fine)] : null);
  }
}

// Numbers of different images cannot be set against each other.
function unlike(chosen) {
  const [a, b] = chosen;
  return b && (JSON.stringify(a.data) !== JSON.stringify(b.data) || a.n !== b.n) ? h("p.note", {}, "These two were measured on different images, so a difference may come from those.") : null;
}

function who(chosen) {
  return h("div.ab-pair", {}, chosen.map((p, i) => h("div", {}, h("i.letter", { style: { background: INKS[i] } }, "AB"[i]), h("span", {}, h("b", {}, p.name), h("small.who", {}, `${p.facts.parameters ? `${number(p.facts.parameters)} parameters, ` : ""}${plural(p.n, "image")}, read ${p.reading}, ${duration(p.seconds)}`), p.notes.map((n) => h("small.who", {}, n))))));
}

function table(chosen) {
  const rows = new Map();
  chosen.forEach((p, i) => p.rows.forEach((r) => {
    if (!rows.has(r.key)) rows.set(r.key, { ...r, cells: [] });
    rows.get(r.key).cells[i] = r;
  }));
  const references = [...new Map(chosen.flatMap((p) => p.rows.flatMap((r) => r.references.map((x) => [x.name, x.about]))))];
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Profile" }, h("table.profile", { role: "table" },
    h("thead", {}, h("tr", { role: "row" }, h("th", { scope: "col" }, "question"), chosen.map((p, i) => h("th", { scope: "col" }, "AB"[i])), h("th", { scope: "col" }, chosen.length > 1 ? "both" : ""), references.map(([name, about]) => h("th.wide-only", { scope: "col", title: about }, name)), h("th", { scope: "col" }, "what it means"))),
    h("tbody", {}, [...rows.values()].map((r) => h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, r.question),
      chosen.map((p, i) => h("td.num", { role: "cell", class: `num is-${"ab"[i]}` }, chosen.length > 1 ? h("i.wide-hide", { style: { color: INKS[i] } }, "AB"[i]) : null, cell(r.cells[i], p, r.key))),
      h("td.strip-cell", { role: "cell" }, strip(r)),
      references.map(([name]) => h("td.num.wide-only", { role: "cell" }, text(r.references.find((x) => x.name === name)?.value, r.unit))),
      h("td.means", { role: "cell" }, r.cells.map((c, i) => (c?.says ? h("div.says-of", {}, chosen.length > 1 ? h("i", { style: { color: INKS[i] } }, "AB"[i]) : null, c.says) : null))))))));
}

function text(v, unit) {
  if (!finite(v)) return "";
  const [k, digits, after] = SCALES[unit] || [1, 3, ""];
  return (unit === "count" ? number(v) : `${unit === "points" && v > 0 ? "+" : ""}${(k * v).toFixed(digits)}`) + after;
}

function cell(r, profile, key) {
  if (!r) return h("small", {}, profile.skipped[key] ? "not asked" : "–");
  const e = r.estimate, [k, digits] = SCALES[r.unit] || [1, 3];
  const wide = finite(e.low) && finite(e.high) && e.low !== e.high;
  return [h("b", {}, text(e.value, r.unit)), wide ? h("small", {}, `[${(k * e.low).toFixed(digits)}, ${(k * e.high).toFixed(digits)}]`) : null, r.accuracy ? h("small", {}, `right then ${text(r.accuracy.value, "percent")}`) : null];
}

// Both models, and the references, on one line.
function strip(r) {
  const percent = r.unit === "percent" || r.unit === "share";
  const all = [...r.cells.filter(Boolean).flatMap((c) => [c.estimate.value, c.estimate.low, c.estimate.high]), ...r.references.map((x) => x.value)].filter(finite);
  if (r.unit === "count" || r.unit === "milliseconds" || !all.length) return null;
  const least = r.unit === "points" ? 0.25 : 0;
  const ends = percent ? [0, 1] : [Math.min(-least, ...all), Math.max(least, ...all)];
  const pad = 0.04 * (ends[1] - ends[0] || 1), x = linear([ends[0] - pad, ends[1] + pad], [2, 158]);
  return s("svg.strip", { viewBox: "0 0 160 26", width: 160, height: 26, "aria-hidden": "true" },
    s("line.base", { x1: 2, x2: 158, y1: 13, y2: 13 }), percent ? null : s("line.zero", { x1: x(0), x2: x(0), y1: 2, y2: 24 }),
    r.references.map((ref) => s("polygon.hollow", { points: `${x(ref.value)},8 ${x(ref.value) + 4},13 ${x(ref.value)},18 ${x(ref.value) - 4},13`, stroke: "var(--muted)" })),
    r.cells.map((c, i) => c && finite(c.estimate.value) && s("g", {}, finite(c.estimate.low) ? s("line", { x1: x(c.estimate.low), x2: x(c.estimate.high), y1: 9 + 8 * i, y2: 9 + 8 * i, stroke: INKS[i], "stroke-width": 4, opacity: 0.35 }) : null, s("circle", { cx: x(c.estimate.value), cy: 9 + 8 * i, r: 3.6, fill: INKS[i] }))));
}

function skipped(chosen) {
  const lists = chosen.map((p) => Object.entries(p.skipped));
  if (!lists.some((l) => l.length)) return null;
  return h("details", {}, h("summary", {}, "Not asked, and why"), chosen.map((p, i) => (lists[i].length ? [h("h3.minor", {}, `${"AB"[i]}: ${p.name}`), h("dl", {}, lists[i].map(([k, why]) => [h("dt", {}, k), h("dd", {}, why)]))] : null)),
    h("h3.minor", {}, "What was measured"), h("dl", {}, Object.entries(chosen[0].data).map(([k, v]) => [h("dt", {}, k), h("dd", {}, value(v))])));
}
