// Profiles: what models look at and what they are blind to, one beside another. saccade profile writes them into the lab.

import { h, put, empty, copyable } from "./dom.js";
import { get } from "./data.js";
import { finite, number, value } from "./format.js";
import { linear } from "./scales.js";
import { s } from "./dom.js";
import { onChange } from "./live.js";

export async function show(root, route, { follow, lab }) {
  let query = { ...route.query }, profiles = await get("profiles");
  draw();
  const off = onChange(async () => { try { profiles = await get("profiles"); draw(); } catch { /* the banner says it */ } });
  return { title: "Profile", close: off, update: (next) => ((query = { ...next.query }), draw(), true) };

  function draw() {
    const head = h("header.head", {}, h("h1", {}, "Profile"), h("p.lead", {}, "What a model looks at and what it is blind to: one row per probe, two models beside each other."));
    if (!profiles.length) {
      put(root, head, empty("No profile yet", h("p", {}, "One command measures any model: a registered name, a run of this lab, a class in a file, a timm or transformers name."), copyable(`saccade profile lenet --lab ${lab.root}`)));
      return;
    }
    const names = profiles.map((p) => p.name);
    const a = names.includes(query.a) ? query.a : names[0], b = names.includes(query.b) ? query.b : names[1];
    const pick = (letter, now) => h("label.pick", {}, h("span", {}, letter.toUpperCase()), h("select", { onchange: (e) => { query = { ...query, [letter]: e.target.value }; follow("profile", [], query); draw(); } }, names.map((n) => h("option", { value: n, selected: n === now }, n))));
    const chosen = [a, b].filter(Boolean).map((n) => profiles.find((p) => p.name === n));
    put(root, head, h("div.controls", {}, pick("a", a), names.length > 1 ? pick("b", b) : null), chosen.some((p) => p.error) ? chosen.filter((p) => p.error).map((p) => h("p.note.bad", {}, p.error)) : null, table(chosen.filter((p) => !p.error)));
  }

  function table(chosen) {
    const rows = new Map();
    chosen.forEach((p, i) => (p.rows || []).forEach((r) => {
      const id = [r.probe, r.metric, JSON.stringify(r.at || {})].join("|");
      if (!rows.has(id)) rows.set(id, { probe: r.probe, metric: r.metric, at: r.at || {}, cells: [], says: r.says || r.sentence || "" });
      rows.get(id).cells[i] = r;
    }));
    return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Profile" }, h("table.profile", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "probe"), chosen.map((p) => h("th", { scope: "col" }, p.name)), h("th", { scope: "col" }, "what it means"))),
      h("tbody", {}, [...rows.values()].map((r) => h("tr", {}, h("th", { scope: "row" }, r.probe, h("small", {}, [r.metric, value(r.at)].filter(Boolean).join(", "))),
        chosen.map((_, i) => h("td.num", {}, cell(r.cells[i], r.cells))), h("td", {}, r.says))))));
  }
}

function cell(r, all) {
  if (!r) return "–";
  if (!finite(r.value)) return h("small", {}, r.reason || r.why || "not measured");
  const percent = all.every((c) => !c || !finite(c.value) || (c.value >= 0 && c.value <= 1));
  const text = percent ? `${(100 * r.value).toFixed(1)} %` : number(r.value);
  return [h("b", {}, text), finite(r.low) && finite(r.high) ? h("small", {}, ` [${percent ? (100 * r.low).toFixed(1) : number(r.low)}, ${percent ? (100 * r.high).toFixed(1) : number(r.high)}]`) : null, percent ? bar(r) : null];
}

function bar(r) {
  const x = linear([0, 1], [1, 119]);
  return s("svg.strip", { viewBox: "0 0 120 12", width: 120, height: 12, "aria-hidden": "true" }, s("line.base", { x1: 1, x2: 119, y1: 6, y2: 6 }), finite(r.low) ? s("line.reach", { x1: x(r.low), x2: x(r.high), y1: 6, y2: 6 }) : null, s("circle.mean", { cx: x(r.value), cy: 6, r: 4 }));
}
