// Runs: a list of any length that filters as one types, and groups of seeds with means, intervals and tests.

import { badge, h, put, announce } from "./dom.js";
import { STATIC } from "./data.js";
import { ago, duration, number, plural } from "./format.js";
import * as store from "./store.js";
import { groups } from "./groups.js";
import { nameOf } from "./picker.js";

const ROW = 38;
export const SIGNS = { finished: "✓", running: "▸", waiting: "…", diverged: "✗", failed: "✗", timeout: "⏱", damaged: "!" };
const FACETS = 10; // offered at first
const SAMPLE = 2000; // rows of a longer list from which the varying fields are found

export async function show(root, route, context) {
  await (route.page === "groups" || route.query.q ? store.load() : store.loadSoon());
  let page = route.page, query = { ...route.query };
  const search = h("input", { type: "search", id: "filter", value: query.q || "", placeholder: "model:lenet backgrounds:8..64 -state:failed", autocomplete: "off", spellcheck: false, "aria-describedby": "filter-help" });
  const facets = h("div.facets", { role: "group", "aria-label": "Filter by a field" });
  const count = h("p.count-line", { role: "status" });
  const body = h("div", {});
  const tabs = h("div.tabs", { role: "group", "aria-label": "View" });
  let view = null, more = false;

  put(root,
    h("header.head", {}, h("h1", {}, "Runs"), tabs),
    h("div.filter", {},
      h("label.unseen", { for: "filter" }, "Filter runs"), search,
      h("details.quiet.help", {}, h("summary", {}, "How to filter"), h("div", { id: "filter-help" },
        h("p", {}, "Words are looked for everywhere. ", h("code", {}, "field:value"), " or ", h("code", {}, "field:a,b"), " is exact, ", h("code", {}, "field:8..64"), ", ", h("code", {}, "lr>0.001"), " compare numbers, ", h("code", {}, "arm:CNN*"), " begins with, ", h("code", {}, "-state:failed"), " leaves out.")))),
    facets, count, body);

  const go = (change) => {
    query = { ...query, ...change };
    context.follow(page, [], query);
    drawTabs(); // the other view keeps the filter
  };
  let pending = 0;
  search.addEventListener("input", () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(() => {
      go({ q: search.value });
      refresh();
    });
  });

  function chosen() {
    const began = performance.now();
    const selected = store.all().filter(store.filter(query.q || ""));
    chosen.milliseconds = performance.now() - began;
    root.dataset.filtered = chosen.milliseconds.toFixed(1);
    return selected;
  }

  function refresh() {
    const selected = chosen(), total = store.count();
    count.textContent = !store.isWhole() && query.q ? `Reading ${plural(total, "run")}…` : !store.isWhole() ? plural(total, "run") : !store.isComplete() && !STATIC ? `Reading the lab: ${plural(total, "run")} so far…` : selected.length === total ? plural(total, "run") : `${selected.length.toLocaleString("en-US")} of ${plural(total, "run")}`;
    if (store.isWhole()) root.dataset.whole = "1";
    drawFacets(selected);
    view?.update(selected);
  }

  function drawTabs() {
    put(tabs, [["runs", "List"], ["groups", "Groups of seeds"]].map(([name, text]) =>
      h("a.tab", { href: context.address(name, [], name === "groups" ? query : { q: query.q }), "aria-current": name === page ? "true" : null }, text)));
  }

  function drawFacets(selected) {
    const active = store.words(query.q || ""), namedFields = active.map((w) => /^(\w+):/.exec(w)?.[1]).filter(Boolean);
    const sample = selected.length > SAMPLE ? selected.filter((_, i) => i % Math.ceil(selected.length / SAMPLE) === 0) : selected;
    const fields = store.common(sample, new Set(["run", "group", "reason", "seconds", "steps", "started", "share", "left", "weights"]));
    const order = [...new Set([...namedFields, ...["state", "study", "scale", "arm", "model", "data"].filter((f) => fields.includes(f)), ...fields])];
    const most = more ? order.length : Math.max(FACETS, namedFields.length);
    put(facets, order.slice(0, most).map((field) => facet(field, active)),
      order.length > most ? h("button.chip", { type: "button", onclick: () => { more = true; drawFacets(selected); } }, `${order.length - most} more`) : null);
  }

  function facet(field, active) {
    const word = active.find((w) => w.startsWith(`${field}:`));
    const list = h("div.menu-list.values", { hidden: true });
    const button = h("button.chip", { type: "button", "aria-expanded": "false", class: `chip${word ? " on" : ""}`, onclick: () => toggle(list.hidden) }, field, word ? h("b", {}, ` ${word.slice(field.length + 1)}`) : null, h("span.caret", { "aria-hidden": "true" }, "▾"));
    const box = h("div.menu", { onkeydown: (e) => { if (e.key === "Escape") { toggle(false); button.focus(); } } }, button, list);
    const away = (e) => { if (!box.contains(e.target)) toggle(false); };
    function toggle(open) {
      list.hidden = !open;
      button.setAttribute("aria-expanded", String(open));
      (open ? document.addEventListener : document.removeEventListener).call(document, "pointerdown", away);
      if (!open) return;
      const others = store.all().filter(store.filter(active.filter((w) => w !== word).join(" ")));
      const by = new Map();
      for (const row of others) if (row[field] !== undefined) by.set(row[field], (by.get(row[field]) || 0) + 1);
      const values = [...by].sort((a, b) => (typeof a[0] === "number" && typeof b[0] === "number" ? a[0] - b[0] : b[1] - a[1] || String(a[0]).localeCompare(String(b[0])))).slice(0, 60);
      const now = word ? word.slice(field.length + 1).split(",").map((t) => t.replace(/"/g, "")) : [];
      put(list, values.map(([value, n]) => {
        const on = now.includes(String(value));
        return h("button", { type: "button", "aria-pressed": String(on), onclick: () => {
          const next = on ? now.filter((v) => v !== String(value)) : [...now, String(value)];
          const rest = active.filter((w) => w !== word);
          if (next.length) rest.push(`${field}:${next.map(store.quote).join(",")}`);
          search.value = rest.join(" ");
          go({ q: search.value });
          refresh();
          facets.querySelector(`[data-field="${field}"] button`)?.focus();
        } }, h("span", {}, String(value)), h("small", {}, n.toLocaleString("en-US")));
      }), values.length === 60 ? h("p.menu-note", {}, "Type to filter for others.") : null);
    }
    box.dataset.field = field;
    return box;
  }

  function open() {
    view?.close?.();
    if (page === "groups" && !store.isWhole()) { // no mean over a part of the runs
      view = null;
      put(body, h("p.wait", {}, "Reading the lab…"));
      drawTabs();
      store.load().then(open, () => {});
      return;
    }
    view = page === "groups" ? groups(body, { query: () => query, go, context }) : list(body, context);
    drawTabs();
    refresh();
  }
  open();
  const off = store.onRows(refresh);
  return {
    title: page === "groups" ? "Groups of seeds" : "Runs",
    close: () => { off(); view?.close?.(); },
    update: (next) => {
      query = { ...next.query };
      search.value = query.q || "";
      if (next.page !== page) { page = next.page; document.title = `${page === "groups" ? "Groups of seeds" : "Runs"} · saccade explorer`; open(); } else refresh();
      drawTabs();
      return true;
    },
  };
}

// Only the rows in view are in the document, so that a hundred thousand scroll like a hundred.
function list(root, context) {
  let rows = [], sorted = [], fields = [], detailFields = [], order = { field: "started", down: true };
  const head = h("tr", {});
  const body = h("tbody", {});
  const table = h("table.list", { "aria-label": "Runs" }, h("thead", {}, head), body);
  const scroller = h("div.scroll.list-scroll", { tabindex: "0", role: "region", "aria-label": "Runs", onscroll: () => requestAnimationFrame(paint) }, table);
  const running = h("section.now", {});
  put(root, running, scroller);

  function columns() {
    const vary = store.common(rows.length > SAMPLE ? rows.filter((_, i) => i % Math.ceil(rows.length / SAMPLE) === 0) : rows, store.BESIDE).filter((f) => f !== "model" && f !== "data");
    const arms = rows.some((r) => r.arm), datas = new Set(rows.slice(0, SAMPLE).map((r) => r.data)).size > 1;
    return ["state", arms ? "arm" : "model", ...(arms ? ["model"] : []), ...(datas ? ["data"] : []), "seed", ...["seconds", "started"].filter((f) => rows.some((r) => r[f] !== undefined)), ...vary.slice(0, arms && datas ? 4 : 5)];
  }

  // All rows are put in order once; a filter then only leaves some out.
  let ranked = [], rankedFor = "";
  function sort() {
    const { field, down } = order, wantedOrder = `${store.stamp()} ${field} ${down}`;
    if (wantedOrder !== rankedFor) {
      ranked = rank(field, down ? -1 : 1);
      rankedFor = wantedOrder;
    }
    const selection = rows.length === ranked.length ? null : new Set(rows);
    sorted = selection ? ranked.filter((r) => selection.has(r)) : ranked;
  }

  function rank(field, k) {
    return store.all().sort((a, b) => {
      const x = a[field], y = b[field];
      if (x === y) return a.run < b.run ? -1 : 1;
      if (x === undefined) return 1;
      if (y === undefined) return -1;
      return (typeof x === "number" && typeof y === "number" ? x - y : String(x) < String(y) ? -1 : 1) * k;
    });
  }

  const titleOf = (f) => (f === "seconds" ? "trained for" : f);

  function paintHead() {
    put(head, fields.map((f, k) => h("th", { scope: "col", class: `f-${f}${k === 1 ? " f-main" : ""}`, "aria-sort": order.field === f ? (order.down ? "descending" : "ascending") : null },
      h("button.sort", { type: "button", onclick: () => { order = { field: f, down: order.field === f ? !order.down : ["started", "seconds"].includes(f) }; sort(); paintHead(); paint(); announce(`sorted by ${titleOf(f)}`); } }, titleOf(f), h("i", { "aria-hidden": "true" }, order.field === f ? (order.down ? " ↓" : " ↑") : "")))));
  }

  function paint() {
    // The window, not the box: the box is as low as its rows until they are there.
    const top = scroller.scrollTop, high = Math.max(scroller.clientHeight, innerHeight);
    const first = Math.max(0, Math.floor(top / ROW) - 6), last = Math.min(sorted.length, Math.ceil((top + high) / ROW) + 6);
    table.setAttribute("aria-rowcount", String(sorted.length + 1));
    const space = (n) => h("tr.space", { "aria-hidden": "true" }, h("td", { colspan: String(fields.length), style: { height: `${n * ROW}px` } }));
    put(body, first ? space(first) : null,
      sorted.slice(first, last).map((r, i) => h("tr", { "aria-rowindex": String(first + i + 2), onclick: (e) => { if (!e.target.closest("a")) location.hash = context.address("run", [r.run]); } }, fields.map((f, k) => cell(r, f, k === 1)))),
      last < sorted.length ? space(sorted.length - last) : null);
    if (!sorted.length) put(body, h("tr", {}, h("td.none", { colspan: String(fields.length || 1) }, store.all().length ? "No run matches this filter." : "There is no run in this lab yet. saccade run digits_on_backgrounds --scale smoke makes the first ones.")));
  }

  function cell(r, f, main) {
    if (f === "state") return h(`td.f-state`, {}, r.state === "running" ? progress(r) : badge(r.state, r.state, SIGNS[r.state]));
    if (main) return h("td.f-main", {}, h("a", { href: context.address("run", [r.run]) }, r[f] ?? r.model ?? r.run), h("small.narrow", {}, detailFields.filter((k) => r[k] !== undefined).map((k) => ` ${k} ${r[k]}`).join(",")), r.reason && r.state !== "finished" ? h("small", {}, ` ${r.reason}`) : null);
    if (f === "seconds") return h("td.num", {}, r.seconds === undefined ? (r.left !== undefined ? `${duration(r.left)} left` : "") : duration(r.seconds));
    if (f === "started") return h("td.num", {}, r.started ? ago(r.started) : "");
    const v = r[f];
    return h(typeof v === "number" ? "td.num" : "td", { class: `f-${f}${typeof v === "number" ? " num" : ""}` }, v === undefined ? "" : typeof v === "number" ? number(v, 5) : String(v));
  }

  function paintRunning() {
    const now = rows.filter((r) => r.state === "running").slice(0, 12);
    put(running, now.length ? [h("h2", {}, "Training now"), h("div.now-list", {}, now.map((r) => h("a.now-card", { href: context.address("run", [r.run]) },
      h("b", {}, nameOf(r, rows)), progress(r), h("small", {}, r.left !== undefined ? `about ${duration(r.left)} left` : "started")))) ] : null);
  }

  return {
    update(selected) {
      rows = selected;
      const next = columns();
      if (next.join() !== fields.join()) fields = next;
      detailFields = fields.filter((f) => !["state", "arm", "model", "data", "seed", "seconds", "started", "images", "watch"].includes(f));
      sort();
      paintHead();
      paint();
      paintRunning();
    },
  };
}

export function progress(r) {
  const share = Math.round(100 * (r.share || 0));
  return h("span.progress", { role: "progressbar", "aria-valuenow": String(share), "aria-valuemin": "0", "aria-valuemax": "100", "aria-label": "trained" }, h("i", { style: { width: `${share}%` } }), h("span", {}, `${share} %`));
}
