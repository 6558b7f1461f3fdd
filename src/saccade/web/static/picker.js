// Choosing a model: every run of the lab that has weights, found by typing.

import { h, put, unique } from "./dom.js";
import * as store from "./store.js";

const MOST = 120;

export function candidates(lab) {
  const labRuns = store.all().filter((r) => (r.state === "finished" || r.state === "running") && r.model && r.weights !== "none");
  const labKeys = new Set(labRuns.map((r) => r.run));
  return [...labRuns, ...(lab.shipped || []).filter((r) => !labKeys.has(r.run))];
}

const titleOf = (r) => (r.shipped ? "came with saccade" : r.study ? `${r.study}, ${r.scale}` : r.data);

function inOrder(a, b) {
  const x = titleOf(a), y = titleOf(b), p = a.shipped || a.arm || a.model, q = b.shipped || b.arm || b.model;
  if (x !== y) return Boolean(a.shipped) - Boolean(b.shipped) || (x < y ? -1 : 1);
  return p !== q ? (p < q ? -1 : 1) : a.seed - b.seed || (a.run < b.run ? -1 : 1);
}

export function nameOf(row, rows) {
  if (!row) return "";
  if (row.shipped) return row.shipped.replace("_", " ");
  const sameArm = rows.filter((r) => (r.arm || r.model) === (row.arm || row.model) && r.study === row.study && r.scale === row.scale);
  const vary = store.varying(sameArm, store.BESIDE).filter((f) => !["watch", "recipe_watch"].includes(f)).slice(0, 3);
  return `${store.label(row, vary)}, seed ${row.seed}`;
}

export function picker(label, onpick) {
  let rows = [], selectedKey = null;
  const id = unique("picker");
  const input = h("input", { type: "search", placeholder: "model, arm, seed …", "aria-label": `Find a model for ${label}`, autocomplete: "off", oninput: () => draw() });
  const list = h("div.picker-list", { role: "listbox", id });
  const panel = h("div.picker-panel", { hidden: true }, input, list);
  const button = h("button.picker-button", { type: "button", "aria-haspopup": "listbox", "aria-expanded": "false", onclick: () => toggle(panel.hidden) });
  const root = h("div.picker", { onkeydown: keys }, button, panel);
  const away = (e) => { if (!root.contains(e.target)) toggle(false); };

  function toggle(open) {
    panel.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    (open ? document.addEventListener : document.removeEventListener).call(document, "pointerdown", away);
    if (open) { input.value = ""; draw(); input.focus(); }
  }
  function keys(e) {
    if (panel.hidden) return;
    if (e.key === "Escape") { toggle(false); button.focus(); }
    const options = [...list.querySelectorAll("button")], at = options.indexOf(document.activeElement);
    if (e.key === "ArrowDown" && options.length) { e.preventDefault(); options[Math.min(options.length - 1, at + 1)].focus(); }
    if (e.key === "ArrowUp") { e.preventDefault(); if (at <= 0) input.focus(); else options[at - 1].focus(); }
    if (e.key === "Enter" && document.activeElement === input && options.length) { e.preventDefault(); options[0].click(); }
  }
  function draw() {
    const test = store.filter(input.value);
    const matches = rows.filter(test).sort(inOrder);
    const parts = new Map();
    for (const r of matches.slice(0, MOST)) {
      const title = titleOf(r);
      if (!parts.has(title)) parts.set(title, []);
      parts.get(title).push(r);
    }
    put(list, [...parts].map(([title, some]) => [h("div.picker-title", {}, title), some.map((r) =>
      h("button", { type: "button", role: "option", "aria-selected": String(r.run === selectedKey), onclick: () => { toggle(false); button.focus(); onpick(r.run); } }, nameOf(r, rows), r.state === "running" ? h("small", {}, " training") : null))]),
      matches.length > MOST ? h("p.menu-note", {}, `${matches.length - MOST} more; type to find them.`) : null,
      matches.length ? null : h("p.menu-note", {}, "No model matches."));
  }
  return {
    root,
    set(all, key) {
      rows = all;
      selectedKey = key;
      const row = all.find((r) => r.run === key);
      put(button, h("i.letter", {}, label), h("span", {}, row ? nameOf(row, all) : key ? key : "choose a model"), h("span.caret", { "aria-hidden": "true" }, "▾"));
    },
  };
}
