// Figures that react to the pointer and to the keyboard, from the same values as the report's.

import { announce, h, menu, put, s, save, unique, copyable } from "./dom.js";
import { colour, heat, isBright, marker } from "./colours.js";
import { finite, interval, number, scaled } from "./format.js";
import { linear, logarithmic, span, smallest, largest } from "./scales.js";

const DASHES = { solid: null, dashed: "6 3", dotted: "1.5 2.5", dashdot: "7 2.5 1.5 2.5" };

// doc: {name, title, data, paper, note, told, python, csv}. options: {log, hidden, onview, caption, level of its heading}
export function figure(doc, options = {}) {
  const id = unique("figure");
  const view = { hidden: new Set(options.hidden || []), xlog: options.xlog, ylog: options.ylog };
  const stage = h("div.plot", {});
  const legend = h("div.legend", { role: "group", "aria-label": "Lines of this figure" });
  const tip = h("div.tip", { hidden: true });
  const tools = h("div.tools", {});
  const root = h("figure.figure", { id: options.id, "aria-labelledby": id },
    h("div.figure-top", {}, h(`h${options.level || 3}${options.plain ? ".unseen" : ""}`, { id }, options.heading || doc.title), tools),
    legend, h("div.stage", {}, stage, tip),
    h("figcaption", {}, options.caption ?? caption(doc)),
  );
  if (doc.error) {
    stage.append(h("p.note", {}, doc.error));
    return root;
  }
  const draw = { Curves: drawCurves, Bars: drawBars, Heatmap: drawHeatmap, ImageGrid: drawImages, Budget: drawBudget }[doc.data.kind];
  const numbers = h("details.quiet", { ontoggle: () => numbers.open && put(table, numbersTable(doc.data)) },
    h("summary", {}, "Numbers behind this figure"), h("div", {}));
  const table = numbers.lastChild;
  if (doc.data.kind !== "ImageGrid") root.append(numbers);

  const context = { doc, view, tip, stage, told: doc.told, changed };
  function changed() {
    render();
    options.onview?.(view);
  }
  function render() {
    const width = Math.floor(stage.clientWidth || 640);
    tip.hidden = true;
    put(stage, draw(doc.data, width, context));
    if (!options.plain) put(legend, legendOf(doc.data, context));
    if (!options.plain) put(tools, toolsOf(doc, context));
  }
  let last = 0;
  new ResizeObserver(() => {
    const width = Math.floor(stage.clientWidth);
    if (width && Math.abs(width - last) > 2) {
      last = width;
      render();
    }
  }).observe(stage);
  return root;
}

const caption = (doc) => [h("span", {}, `In the paper: ${doc.paper || "no counterpart"}. `), doc.note || ""];

const linesOf = (data) => (data.kind === "Curves" ? data.panels.flatMap((p) => p.lines) : data.kind === "Bars" ? data.lines : []);

function counted(line) {
  if (line.single) return ""; // a curve of one run: there is nothing to count
  const ns = [...new Set(line.estimates.filter((e) => e.method !== "exact").map((e) => e.n))].sort((a, b) => a - b);
  const lost = line.missing ? `, ${line.why || `${line.missing} missing`}` : "";
  if (!line.estimates.length) return lost ? `n=0${lost}` : "no rows yet";
  return (ns.length === 0 ? "exact" : ns.length === 1 ? `n=${ns[0]}` : `n=${ns[0]} to ${ns[ns.length - 1]}`) + lost;
}

const inkOf = (line) => line.ink || colour(line.family, line.shade);

function legendOf(data, { view, changed }) {
  const lineByLabel = new Map();
  for (const line of linesOf(data)) if (!lineByLabel.has(line.label)) lineByLabel.set(line.label, line);
  const all = [...lineByLabel.values()];
  if (!all.length) return [];
  const items = all.map((line) => {
    const off = view.hidden.has(line.label);
    return h("button.key", {
      type: "button", "aria-pressed": String(!off), title: off ? "Show this line" : "Hide this line; with Shift, show only it",
      onclick: (e) => {
        if (e.shiftKey) {
          const alone = all.every((l) => l === line || view.hidden.has(l.label));
          view.hidden = new Set(alone ? [] : all.filter((l) => l !== line).map((l) => l.label));
        } else if (off) view.hidden.delete(line.label);
        else view.hidden.add(line.label);
        const at = all.indexOf(line), group = e.currentTarget.parentElement;
        changed();
        group.children[at]?.focus();
      },
    }, swatch(line), h("span", {}, line.label, counted(line) ? h("small", {}, ` ${counted(line)}`) : null));
  });
  const marks = data.kind === "Curves" ? data.panels.some((p) => p.marks.length) : data.marks?.length;
  const note = marks ? h("span.key.still", {}, s("svg", { width: 20, height: 14, "aria-hidden": "true" }, diamond(10, 7, "var(--ink)")), h("span", {}, "the paper's value")) : null;
  return [...items, note].filter(Boolean);
}

function swatch(line) {
  const ink = inkOf(line);
  return s("svg", { width: 30, height: 14, "aria-hidden": "true" },
    s("line", { x1: 1, x2: 29, y1: 7, y2: 7, stroke: ink, "stroke-width": 1.8, "stroke-dasharray": DASHES[line.dash] }),
    shape(marker(line.family), 15, 7, ink));
}

function shape(kind, x, y, ink, r = 3.6, more = {}) {
  const p = { fill: ink, class: "shape", ...more };
  const poly = (points) => s("polygon", { ...p, points: points.map(([a, b]) => `${(x + a * r).toFixed(2)},${(y + b * r).toFixed(2)}`).join(" ") });
  if (kind === "circle") return s("circle", { ...p, cx: x, cy: y, r });
  if (kind === "square") return poly([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
  if (kind === "triangle up") return poly([[0, -1.15], [1.1, 0.8], [-1.1, 0.8]]);
  if (kind === "triangle down") return poly([[0, 1.15], [1.1, -0.8], [-1.1, -0.8]]);
  if (kind === "plus") return poly([[-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]]);
  if (kind === "cross") return poly([[-1, -0.5], [-0.5, -1], [0, -0.5], [0.5, -1], [1, -0.5], [0.5, 0], [1, 0.5], [0.5, 1], [0, 0.5], [-0.5, 1], [-1, 0.5], [-0.5, 0]]);
  return poly([0, 1, 2, 3, 4].map((i) => [1.1 * Math.sin((i * 2 * Math.PI) / 5), -1.1 * Math.cos((i * 2 * Math.PI) / 5)]));
}

const diamond = (x, y, ink) => s("polygon", { class: "hollow", points: `${x},${y - 5} ${x + 5},${y} ${x},${y + 5} ${x - 5},${y}`, stroke: ink });

// -- the frame that curves and bars share

function frame(svg, box, y, { percent, label, first }) {
  const n = Math.max(2, Math.round(box.height / 46));
  for (const v of y.ticks(n)) {
    const at = y(v);
    if (at < box.top - 1 || at > box.top + box.height + 1) continue;
    svg.append(s("line.grid", { x1: box.left, x2: box.left + box.width, y1: at, y2: at }));
    // Panels share their range: the first of a row shows it, and no label lies on the panel to its left.
    if (first) svg.append(s("text.tick", { x: box.left - 8, y: at + 3.5, "text-anchor": "end" }, percent ? number(100 * v, 6) : number(v, 6)));
  }
  if (first && label) svg.append(s("text.label", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(${box.left - 44} ${box.top + box.height / 2}) rotate(-90)` }, percent && !/%|\(points\)|percentage points/.test(label) ? `${label} (%)` : label));
}

function wrap(text, room) {
  const lines = [];
  for (const word of String(text).split(/\s+/)) {
    if (lines.length && (lines[lines.length - 1] + " " + word).length <= room) lines[lines.length - 1] += " " + word;
    else lines.push(word);
  }
  return lines;
}

const textLines = (lines, x, y, props) =>
  s(props.class === "title" ? "text.title" : "text.label", { "text-anchor": props.anchor || "middle", x, y },
    lines.map((line, i) => s("tspan", { x, dy: i ? "1.2em" : 0 }, line)));

function errorBar(group, x, e, y, ink, box) {
  if (!finite(e.low) || !finite(e.high) || e.high <= e.low) return;
  const low = Math.min(y(e.low), box.top + box.height), high = Math.max(y(e.high), box.top);
  group.append(s("line", { x1: x, x2: x, y1: low, y2: high, stroke: ink, "stroke-width": 4.5, opacity: 0.3 }));
  for (const [beyond, at, up] of [[y(e.low) > low + 0.5, low, 1], [y(e.high) < high - 0.5, high, -1]]) {
    if (beyond) group.append(s("polygon", { fill: ink, points: `${x - 3.5},${at - 5 * up} ${x + 3.5},${at - 5 * up} ${x},${at}` }));
  }
}

// -- curves

function drawCurves(data, width, context) {
  const { view } = context;
  const panels = data.panels.length ? data.panels : [{ title: "", lines: [], marks: [], fits: [], x_label: "" }];
  const visiblePanels = panels.map((p) => ({ ...p, lines: p.lines.filter((l) => !view.hidden.has(l.label)) }));
  const columns = Math.min(panels.length, Math.max(1, Math.min(panels.some((p) => p.y_label) ? 2 : 4, Math.floor(width / (panels.length > 3 ? 250 : 320)))));
  const rows = Math.ceil(panels.length / columns);
  const ylog = view.ylog ?? data.y_log;
  // A panel with a label of its own has an axis of its own; the others share one.
  const spanOf = (some) => span(some.flatMap((p) => p.lines), some.flatMap((p) => [...p.marks.map((m) => m.y), ...p.fits.flatMap((f) => f.y)]), { log: ylog, share: data.y_percent, whole: data.whole });
  const range = spanOf(visiblePanels.filter((p) => !p.y_label));
  const own = panels.some((p) => p.y_label);
  const left = 62, gap = own ? 80 : 18, right = 14;
  const inner = (width - left - right - gap * (columns - 1)) / columns;
  const height = columns === 1 ? Math.min(340, Math.max(220, inner * 0.62)) : Math.min(260, Math.max(180, inner * 0.72));
  const titles = panels.map((p) => wrap(p.title, Math.max(12, inner / 6.6)).slice(0, 3));
  const titleRoom = panels.some((p) => p.title) ? 14 + 15 * Math.max(...titles.map((t) => t.length)) : 12;
  const rowHeight = titleRoom + height + 58;
  const svg = s("svg", { width, height: rows * rowHeight, viewBox: `0 0 ${width} ${rows * rowHeight}`, role: "img", "aria-label": context.told || data.title });
  const points = [];
  visiblePanels.forEach((panel, i) => {
    const column = i % columns, row = Math.floor(i / columns);
    const box = { left: left + column * (inner + gap), top: row * rowHeight + titleRoom, width: inner, height };
    if (panel.title) svg.append(textLines(titles[i], box.left, row * rowHeight + 14, { class: "title", anchor: "start" }));
    drawPanel(svg, panel, box, panel.y_label ? spanOf([panel]) : range, { data, ylog, first: column === 0 || Boolean(panel.y_label), view, points, panelIndex: i });
  });
  return [interactive(svg, points, context, data.y_percent)];
}

function drawPanel(svg, panel, box, range, { data, ylog, first, view, points, panelIndex }) {
  const xs = [...new Set([...panel.lines.flatMap((l) => l.x), ...panel.marks.map((m) => m.x), ...panel.fits.flatMap((f) => f.x)])].sort((a, b) => a - b);
  svg.append(s("rect.pane", { x: box.left, y: box.top, width: box.width, height: box.height }));
  if (!xs.length || !range) {
    svg.append(s("text.label", { x: box.left + box.width / 2, y: box.top + box.height / 2, "text-anchor": "middle" }, panel.lines.length || !view.hidden.size ? "no rows yet" : "every line is hidden"));
    return;
  }
  const y = (ylog ? logarithmic : linear)(range, [box.top + box.height, box.top]);
  frame(svg, box, y, { percent: data.y_percent, label: panel.y_label || data.y_label, first });
  const wantsLog = view.xlog ?? Boolean(panel.x_log);
  const log = wantsLog && xs[0] > 0 ? panel.x_log || 10 : null;
  const make = log ? logarithmic : linear;
  const pad = 16;
  const ends = [box.left + pad, box.left + box.width - pad];
  const x = xs.length === 1 ? Object.assign(() => box.left + box.width / 2, { ticks: () => xs, log }) : make([xs[0], xs[xs.length - 1]], panel.x_down ? ends.reverse() : ends, log || 10);
  xAxis(svg, panel, box, x, xs);
  const places = xs.map((v) => x(v)).sort((a, b) => a - b);
  const nearest = smallest(places.slice(1).map((p, i) => p - places[i]));
  const between = Number.isFinite(nearest) ? nearest : box.width / 2;
  const room = Math.min(20, 0.6 * between) / Math.max(panel.lines.length, 1);
  const crowded = between < 9 || room < 1.6;
  const dodge = crowded ? 0 : Math.min(6.2, room);
  const offset = new Map();
  panel.lines.forEach((line, i) => {
    const dx = (i - (panel.lines.length - 1) / 2) * dodge, ink = inkOf(line);
    offset.set(line.label, [dx, ink]);
    const group = s("g.line", { data: { line: line.label } });
    const at = line.x.map((v) => x(v) + dx), ys = line.estimates.map((e) => y(e.value));
    if (crowded) {
      const intervals = line.estimates.map((e, k) => [at[k], e]).filter(([, e]) => finite(e.low) && finite(e.high) && (!ylog || e.low > 0));
      const clamp = (v) => Math.min(Math.max(y(v), box.top), box.top + box.height);
      if (intervals.length > 1) group.append(s("polygon", { fill: ink, opacity: 0.16, points: [...intervals.map(([a, e]) => `${a},${clamp(e.high)}`), ...intervals.reverse().map(([a, e]) => `${a},${clamp(e.low)}`)].join(" ") }));
    } else {
      line.estimates.forEach((e, k) => errorBar(group, at[k], e, y, ink, box));
      line.seeds.forEach((seeds, k) => seeds.length > 1 && seeds.forEach((v) => (v > 0 || !ylog) && group.append(s("circle", { cx: at[k] + Math.min(4.4, 0.85 * Math.max(dodge, 2)), cy: y(v), r: 1.7, fill: ink, opacity: 0.65 }))));
    }
    const path = at.map((a, k) => [a, ys[k], line.estimates[k].value]).filter(([, , v]) => v > 0 || !ylog);
    group.append(s("polyline", { points: path.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" "), fill: "none", stroke: ink, "stroke-width": 1.8, "stroke-dasharray": DASHES[line.dash], "stroke-linejoin": "round" }));
    const every = crowded ? Math.max(1, Math.floor(line.x.length / 6)) : 1;
    path.forEach(([a, b], k) => k % every === 0 && group.append(shape(marker(line.family), a, b, ink)));
    line.x.forEach((v, k) => points.push({ x: at[k], y: ys[k], line, k, ink, panel, panelIndex, where: `${panel.x_label || "x"} ${number(v, 6)}`, estimate: line.estimates[k], seeds: line.seeds[k] }));
    svg.append(group);
  });
  for (const fit of panel.fits) {
    if (view.hidden.has(fit.label)) continue;
    const path = fit.x.map((v, k) => [x(v), fit.y[k]]).filter(([, v]) => v > 0 || !ylog);
    svg.append(s("polyline", { points: path.map(([a, v]) => `${a.toFixed(1)},${y(v).toFixed(1)}`).join(" "), fill: "none", stroke: colour(fit.family, 0.8), "stroke-width": 1.1, "stroke-dasharray": "3.4 2.2" }));
  }
  for (const mark of panel.marks) {
    if (mark.line && view.hidden.has(mark.line)) continue;
    const [dx, ink] = offset.get(mark.line) || [0, "var(--ink)"];
    svg.append(diamond(x(mark.x) + dx, y(mark.y), ink));
    points.push({ x: x(mark.x) + dx, y: y(mark.y), paper: mark, panel, panelIndex, ink, where: `${panel.x_label || "x"} ${number(mark.x, 6)}` });
  }
}

function xAxis(svg, panel, box, x, xs) {
  const base = box.top + box.height;
  svg.append(s("line.axis", { x1: box.left, x2: box.left + box.width, y1: base, y2: base }));
  const ticks = xs.length <= 12 ? xs : x.ticks(Math.max(3, Math.round(box.width / 70)));
  const order = [...ticks].sort((a, b) => x(a) - x(b));
  let last = -Infinity;
  for (const v of order) {
    const at = x(v), text = number(v, 6), half = 3.6 * text.length;
    svg.append(s("line.axis", { x1: at, x2: at, y1: base, y2: base + 4 }));
    if (at - half > last + 4) {
      svg.append(s("text.tick", { x: at, y: base + 17, "text-anchor": "middle" }, text));
      last = at + half;
    }
  }
  const label = wrap(panel.x_label, Math.max(14, box.width / 6)).slice(0, 2);
  svg.append(textLines(label, box.left + box.width / 2, base + 34, {}));
}

// -- bars

function drawBars(data, width, context) {
  const { view } = context;
  const lines = data.lines.filter((l) => !view.hidden.has(l.label));
  const ylog = view.ylog ?? data.y_log;
  const range = span(lines, data.marks.map((m) => m.y), { log: ylog, zero: !ylog, share: data.y_percent });
  const left = 62, right = 14, top = 12;
  const inner = width - left - right;
  const each = inner / Math.max(1, data.categories.length);
  const names = data.categories.map((c) => wrap(c, Math.max(6, each / 7)));
  const below = 16 + 14 * Math.max(1, ...names.map((n) => n.length)) + (data.x_label ? 22 : 0);
  const height = Math.min(340, Math.max(220, inner * 0.5));
  const svg = s("svg", { width, height: top + height + below, viewBox: `0 0 ${width} ${top + height + below}`, role: "img", "aria-label": context.told || data.title });
  const box = { left, top, width: inner, height };
  svg.append(s("rect.pane", { x: left, y: top, width: inner, height }));
  const points = [];
  if (!range) {
    svg.append(s("text.label", { x: left + inner / 2, y: top + height / 2, "text-anchor": "middle" }, data.lines.length && !lines.length ? "every line is hidden" : "no rows yet"));
    return [svg];
  }
  const y = (ylog ? logarithmic : linear)(range, [top + height, top]);
  frame(svg, box, y, { percent: data.y_percent, label: data.y_label, first: true });
  const wide = Math.min(64, (0.8 * each) / Math.max(1, lines.length));
  const present = data.categories.map((_, c) => lines.filter((l) => l.x.includes(c) || data.marks.some((m) => m.line === l.label && m.x === c)));
  // Where fewer lines have a value, their bars stand in the middle all the same.
  const place = (category, i) => left + (category + 0.5) * each + (present[category].indexOf(lines[i]) - (present[category].length - 1) / 2) * wide;
  lines.forEach((line, i) => {
    const ink = inkOf(line), group = s("g.line", { data: { line: line.label } });
    line.x.forEach((category, k) => {
      const e = line.estimates[k], x = place(category, i);
      if (!ylog) {
        const a = y(e.value), b = y(Math.min(Math.max(0, range[0]), range[1]));
        group.append(s("rect", { x: x - 0.43 * wide, width: 0.86 * wide, y: Math.min(a, b), height: Math.abs(a - b), fill: ink, "fill-opacity": 0.17, stroke: ink, "stroke-width": 1, "stroke-dasharray": DASHES[line.dash] }));
      }
      errorBar(group, x, e, y, ink, box);
      const seeds = line.seeds[k];
      if (seeds.length > 1) seeds.forEach((v) => (v > 0 || !ylog) && group.append(s("circle", { cx: x + Math.min(7, 0.3 * wide), cy: y(v), r: 1.8, fill: ink, opacity: 0.65 })));
      group.append(shape(marker(line.family), x, y(e.value), ink));
      points.push({ x, y: y(e.value), line, k, ink, panelIndex: 0, where: data.categories[category], estimate: e, seeds });
    });
    svg.append(group);
  });
  for (const mark of data.marks) {
    const i = lines.findIndex((l) => l.label === mark.line);
    if (mark.line && i < 0) continue;
    const x = i < 0 ? left + (mark.x + 0.5) * each : place(mark.x, i), ink = i < 0 ? "var(--ink)" : inkOf(lines[i]);
    svg.append(diamond(x, y(mark.y), ink));
    points.push({ x, y: y(mark.y), paper: mark, ink, panelIndex: 0, where: data.categories[mark.x] });
  }
  if (!ylog && range[0] < 0 && range[1] > 0) svg.append(s("line.axis", { x1: left, x2: left + inner, y1: y(0), y2: y(0) }));
  svg.append(s("line.axis", { x1: left, x2: left + inner, y1: top + height, y2: top + height }));
  names.forEach((name, i) => svg.append(textLines(name, left + (i + 0.5) * each, top + height + 17, {})));
  if (data.x_label) svg.append(textLines([data.x_label], left + inner / 2, top + height + below - 6, {}));
  return [interactive(svg, points, context, data.y_percent)];
}

// -- verdict against budget: a small panel per contrast, each with its own axis

const TONES = { reproduced: "var(--yes)", holds: "var(--yes)", contradicted: "var(--no)", "does not hold": "var(--no)", equivalent: "var(--same)" };

function drawBudget(data, width, context) {
  const columns = Math.max(2, Math.min(data.paths.length, Math.floor(width / 168))), rows = Math.ceil(data.paths.length / columns);
  const wide = width / columns, high = 132;
  const tall = rows * high + 20;
  const svg = s("svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": context.told });
  svg.append(s("text.label", { x: 8, y: tall - 5 }, "across: % of the training · upwards: percentage points, or the claim's own unit · dotted: no difference"));
  const points = [];
  data.paths.forEach((path, i) => {
    const left = (i % columns) * wide + 8, top = Math.floor(i / columns) * high;
    const scale = 34;  // room for the numbers of the panel's own axis
    const box = { left: left + scale, top: top + 34, width: wide - 22 - scale, height: high - 62 };
    const percent = path.unit === "points", ink = TONES[path.says] || "var(--open)";
    const line = { label: path.label, estimates: path.estimates, seeds: path.shares.map(() => []), missing: 0 };
    const range = span([line], [path.null], { whole: true });
    const y = linear(range, [box.top + box.height, box.top]);
    const x = linear([0, 1], [box.left + 4, box.left + box.width - 8]);
    const group = s("g.line", { data: { line: path.label } });
    group.append(s("rect.pane", { x: box.left, y: box.top, width: box.width, height: box.height }));
    svg.append(s("text.title", { x: left, y: top + 14 }, path.label), s("text", { x: left, y: top + 28, "font-size": 10.5, fill: ink }, path.verdict.length > wide / 6 ? path.verdict.slice(0, wide / 6 - 1) + "…" : path.verdict));
    group.append(s("line", { x1: box.left, x2: box.left + box.width, y1: y(path.null), y2: y(path.null), stroke: "var(--muted)", "stroke-dasharray": "2 2" }));
    path.estimates.forEach((e, k) => errorBar(group, x(path.shares[k]), e, y, ink, box));
    group.append(s("polyline", { points: path.estimates.map((e, k) => `${x(path.shares[k]).toFixed(1)},${y(e.value).toFixed(1)}`).join(" "), fill: "none", stroke: ink, "stroke-width": 1.6 }));
    path.estimates.forEach((e, k) => {
      group.append(s("circle.shape", { cx: x(path.shares[k]), cy: y(e.value), r: 3.4, fill: ink }));
      points.push({ x: x(path.shares[k]), y: y(e.value), line, k, ink, panelIndex: i, percent, where: `${Math.round(100 * path.shares[k])} % of the budget`, estimate: e, seeds: [] });
    });
    for (const v of y.ticks(3)) group.append(s("line.grid", { x1: box.left, x2: box.left + box.width, y1: y(v), y2: y(v) }), s("text.tick", { x: box.left - 4, y: y(v) + 4, "text-anchor": "end" }, number(percent ? 100 * v : v, 3)));
    for (const share of path.shares) group.append(s("text.tick", { x: x(share), y: box.top + box.height + 14, "text-anchor": "middle" }, `${Math.round(100 * share)}`));
    svg.append(group);
  });
  return [interactive(svg, points, context, false)];
}

// -- what curves and bars do under the pointer and the keyboard

function interactive(svg, points, { tip }, percent) {
  const ring = s("circle.ring", { r: 7, visibility: "hidden" });
  svg.append(ring);
  const order = points.filter((p) => !p.paper);
  let current = -1;
  function sentence(p) {
    if (p.paper) return `the paper: ${p.paper.text || scaled(p.paper.y, percent)}, ${p.where}`;
    return `${p.panel?.title ? p.panel.title + ", " : ""}${p.line.label}, ${p.where}: ${interval(p.estimate, p.percent ?? percent)}, n=${p.estimate.n}`;
  }
  function show(p, fromKeys) {
    ring.setAttribute("cx", p.x);
    ring.setAttribute("cy", p.y);
    ring.setAttribute("stroke", p.ink);
    ring.setAttribute("visibility", "visible");
    for (const g of svg.querySelectorAll("g.line")) g.classList.toggle("faded", Boolean(p.line) && g.dataset.line !== p.line.label);
    put(tip, tipOf(p, p.percent ?? percent));
    tip.hidden = false;
    const size = svg.getBoundingClientRect(), k = size.width / svg.viewBox.baseVal.width;
    const x = p.x * k, y = p.y * k;
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = `${Math.min(Math.max(4, x + 14 + wide > size.width ? x - wide - 14 : x + 14), Math.max(4, size.width - wide - 4))}px`;
    tip.style.top = `${Math.max(0, y - high - 10 < 0 ? y + 14 : y - high - 10)}px`;
    if (fromKeys) announce(sentence(p));
  }
  function hide() {
    tip.hidden = true;
    current = -1;
    ring.setAttribute("visibility", "hidden");
    for (const g of svg.querySelectorAll("g.line")) g.classList.remove("faded");
  }
  const move = (e) => {
    const box = svg.getBoundingClientRect(), k = svg.viewBox.baseVal.width / box.width;
    const x = (e.clientX - box.left) * k, y = (e.clientY - box.top) * k;
    let best = null, far = 46 ** 2;
    for (const p of points) {
      const d = (p.x - x) ** 2 + (p.y - y) ** 2;
      if (d < far) [best, far] = [p, d];
    }
    if (best) show(best);
    else hide();
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.setAttribute("tabindex", "0");
  svg.classList.add("live");
  svg.setAttribute("aria-roledescription", "figure; arrow keys go from point to point");
  svg.addEventListener("keydown", (e) => {
    if (!order.length) return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    const line = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (e.key === "Escape") return hide();
    if (step === undefined && line === undefined && e.key !== "Home" && e.key !== "End") return;
    e.preventDefault();
    if (current < 0) current = e.key === "End" ? order.length - 1 : 0;
    else if (step) current = (current + step + order.length) % order.length;
    else if (line) {
      const lines = [...new Set(order.map((p) => p.line))];
      const at = order[current];
      const next = lines[(lines.indexOf(at.line) + line + lines.length) % lines.length];
      const k = order.findIndex((p) => p.line === next && p.where === at.where);
      current = k >= 0 ? k : order.findIndex((p) => p.line === next);
    } else current = e.key === "Home" ? 0 : order.length - 1;
    show(order[current], true);
  });
  return svg;
}

function tipOf(p, percent) {
  if (p.paper) return [h("b", {}, "the paper's value"), h("div", {}, p.where), h("div.big", {}, scaled(p.paper.y, percent)), p.paper.text ? h("div", {}, p.paper.text) : null];
  const e = p.estimate, unit = percent ? " %" : "";
  return [
    h("b", {}, h("i.dot", { style: { background: p.ink } }), p.line.label),
    h("div", {}, p.panel?.title ? `${p.panel.title}, ${p.where}` : p.where),
    h("div.big", {}, scaled(e.value, percent) + unit, finite(e.low) && finite(e.high) && e.method !== "exact" ? h("span", {}, ` [${scaled(e.low, percent)}, ${scaled(e.high, percent)}]`) : null),
    h("div", {}, e.method === "exact" ? "exact" : `n=${e.n}${p.line.missing ? `, ${p.line.why || `${p.line.missing} missing`}` : ""}${finite(e.low) ? `, ${Math.round(100 * e.level)} % interval` : ", no interval from one"}`),
    p.seeds?.length > 1 ? h("div.seeds", {}, `seeds: ${p.seeds.slice(0, 12).map((v) => scaled(v, percent)).join("  ")}${p.seeds.length > 12 ? " …" : ""}`) : null,
  ];
}

// -- heat maps and images

function drawHeatmap(data, width, context) {
  const { tip } = context;
  const across = data.column_labels.length, down = data.row_labels.length;
  const values = data.cells.flat().filter(Boolean).map((e) => e.value);
  if (!values.length) return [h("p.note", {}, "no rows yet")];
  const labelRoom = Math.min(0.36 * width, 14 + 7 * Math.max(...data.row_labels.map((t) => t.length)));
  const side = Math.min(64, (width - labelRoom - 10) / across);
  const high = Math.max(18, Math.min(42, side * 0.72));
  const top = 26, names = data.column_labels.map((c) => wrap(c, Math.max(3, side / 6.4)));
  const below = 14 + 13 * Math.max(...names.map((n) => n.length)) + (data.x_label ? 20 : 0);
  const most = largest([...values.map(Math.abs), data.ceiling]) || 1, low = smallest(values), peak = largest([...values, data.ceiling]);
  // One number of places for all cells; what that would make a zero of is written out.
  const places = Math.max(0, 2 - Math.floor(Math.log10(most))), text = (v) => (data.percent ? (100 * v).toFixed(1) : v && Math.abs(v) < 0.5 * 10 ** -places ? number(v, 2) : v.toFixed(Math.min(places, 12)));
  const shade = (v) => (data.diverging ? 0.5 + v / (2 * most) : (v - low) / (peak - low || 1));
  const svg = s("svg", { width, height: top + down * high + below, viewBox: `0 0 ${width} ${top + down * high + below}`, role: "img", "aria-label": context.told });
  svg.append(s("text.label", { x: labelRoom, y: 14 }, `${data.unit}${data.percent ? " (%)" : ""}`));
  data.cells.forEach((row, i) => {
    svg.append(s("text.tick", { x: labelRoom - 8, y: top + (i + 0.5) * high + 4, "text-anchor": "end" }, data.row_labels[i]));
    row.forEach((e, j) => {
      const x = labelRoom + j * side, y = top + i * high, t = e ? shade(e.value) : 0;
      const cell = s("rect", { x: x + 1, y: y + 1, width: side - 2, height: high - 2, rx: 3, fill: e ? heat(t, data.diverging) : "var(--grid)" });
      svg.append(cell);
      if (side > 34) svg.append(s("text", { x: x + side / 2, y: y + high / 2 + 4, "text-anchor": "middle", "font-size": 11, fill: e && !isBright(t, data.diverging) ? "#fdfdfd" : "#15181c", "pointer-events": "none" }, e ? text(e.value) : "–"));
      if (!e) return;
      const point = { x: x + side / 2, y: y + high / 2, ink: heat(t, data.diverging), line: { label: data.row_labels[i], missing: 0 }, where: `${data.x_label || "column"} ${data.column_labels[j]}`, estimate: e, seeds: [] };
      const show = () => {
        put(tip, tipOf(point, data.percent));
        tip.hidden = false;
        const k = svg.getBoundingClientRect().width / width;
        tip.style.left = `${Math.min(point.x * k + 10, Math.max(4, width * k - tip.offsetWidth - 4))}px`;
        tip.style.top = `${Math.max(0, point.y * k - tip.offsetHeight - 8)}px`;
      };
      cell.addEventListener("pointerenter", show);
      cell.addEventListener("pointerdown", show);
    });
  });
  names.forEach((name, j) => svg.append(textLines(name, labelRoom + (j + 0.5) * side, top + down * high + 15, {})));
  if (data.x_label) svg.append(textLines([data.x_label], labelRoom + (across * side) / 2, top + down * high + below - 6, {}));
  svg.addEventListener("pointerleave", () => (tip.hidden = true));
  return [svg];
}

function drawImages(data, width) {
  const across = Math.max(1, ...data.images.map((r) => r.length));
  const labels = data.row_labels.length > 0;
  const side = Math.max(44, Math.min(112, (width - (labels ? 120 : 0)) / across - 8));
  const head = data.column_labels.length ? h("tr", {}, labels ? h("td", {}) : null, data.column_labels.map((c) => h("th", { scope: "col" }, c))) : null;
  const rows = data.images.map((row, i) =>
    h("tr", {}, labels ? h("th", { scope: "row" }, data.row_labels[i]) : null,
      row.map((p) => h("td", {}, p ? h("figure", {}, h("img.pixels", { src: `data:image/png;base64,${p.png}`, width: Math.round(side), height: Math.round((side * p.height) / p.width), alt: p.caption || `${data.row_labels[i] || ""}` }), p.caption ? h("figcaption", {}, p.caption) : null) : null))));
  return [h("div.scroll.images", { tabindex: "0", role: "region", "aria-label": data.title }, h("table", {}, head ? h("thead", {}, head) : null, h("tbody", {}, rows)))];
}

// -- the same numbers as a table

function numbersTable(data) {
  const k = (v) => (finite(v) ? number(v, 5) : "");
  let head, rows;
  if (data.kind === "Budget") {
    head = ["claim", "verdict", "share of budget", "value", "low", "high", "n"];
    rows = data.paths.flatMap((p) => p.estimates.map((e, i) => [p.label, p.verdict, p.shares[i], k(e.value), k(e.low), k(e.high), e.n]));
  } else if (data.kind === "Heatmap") {
    head = [data.y_label || "row", data.x_label || "column", "value", "low", "high", "n"];
    rows = data.cells.flatMap((row, i) => row.map((e, j) => e && [data.row_labels[i], data.column_labels[j], k(e.value), k(e.low), k(e.high), e.n])).filter(Boolean);
  } else {
    const panels = data.kind === "Curves" ? data.panels : [{ title: "", lines: data.lines, marks: data.marks, x_label: data.x_label }];
    const name = (x) => (data.kind === "Bars" ? data.categories[x] : k(x));
    const many = panels.length > 1;
    head = [...(many ? ["panel"] : []), "line", data.kind === "Bars" ? "category" : panels[0]?.x_label || "x", "value", "low", "high", "n", "seeds"];
    rows = panels.flatMap((p) => [
      ...p.lines.flatMap((l) => l.x.map((x, i) => [...(many ? [p.title] : []), l.label, name(x), k(l.estimates[i].value), k(l.estimates[i].low), k(l.estimates[i].high), l.estimates[i].n, l.seeds[i].map((v) => k(v)).join("  ")])),
      ...p.marks.map((m) => [...(many ? [p.title] : []), `the paper${m.line ? `: ${m.line}` : ""}`, name(m.x), k(m.y), "", "", "", m.text || ""]),
    ]);
  }
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Numbers behind this figure" },
    h("table.numbers", {}, h("thead", {}, h("tr", {}, head.map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, rows.slice(0, 2000).map((r) => h("tr", {}, r.map((c, i) => (i ? h("td", {}, String(c)) : h("th", { scope: "row" }, String(c)))))))));
}

// -- tools: log axes, and the figure to download

function toolsOf(doc, { view, stage, changed }) {
  const data = doc.data, lines = linesOf(data);
  const positive = (values) => values.length && values.every((v) => v > 0);
  const canY = positive(lines.flatMap((l) => l.estimates.map((e) => e.value)));
  const canX = data.kind === "Curves" && positive(lines.flatMap((l) => l.x)) && lines.some((l) => l.x.length > 1);
  const ylog = view.ylog ?? data.y_log, xlog = view.xlog ?? data.panels?.some((p) => p.x_log);
  const flip = (label, on, act) => h("button.quiet", { type: "button", "aria-pressed": String(Boolean(on)), onclick: (e) => { const at = [...e.currentTarget.parentElement.children].indexOf(e.currentTarget), toolbar = e.currentTarget.parentElement; act(); changed(); toolbar.children[at]?.focus(); } }, label);
  return [
    canX ? flip("log x", xlog, () => (view.xlog = !xlog)) : null,
    canY ? flip("log y", ylog, () => (view.ylog = !ylog)) : null,
    menu("Take", (close) => [
      data.kind !== "ImageGrid" ? h("button", { type: "button", onclick: () => { save(`${doc.name}.svg`, svgText(stage.querySelector("svg"), doc), "image/svg+xml"); close(); } }, "SVG, as it is shown") : null,
      doc.csv ? h("a", { href: doc.csv, download: `${doc.name}.csv`, onclick: () => close() }, "CSV, the report's numbers") : doc.csvText ? h("button", { type: "button", onclick: () => { save(`${doc.name}.csv`, doc.csvText(), "text/csv"); close(); } }, "CSV") : null,
      doc.python ? h("div.menu-note", {}, h("b", {}, "Python that draws it"), copyable(doc.python)) : null,
    ], { "aria-label": `Take the figure ${doc.title || ""}` }),
  ];
}

// The drawing with its styles inside and in light colours, so that it looks the same anywhere.
function svgText(svg, doc) {
  const holder = h("div.light.offscreen", {});
  const copy = svg.cloneNode(true);
  holder.append(copy);
  document.body.append(holder);
  const properties = ["fill", "stroke", "stroke-width", "font-size", "font-family", "font-weight", "opacity"];
  for (const element of copy.querySelectorAll("*")) {
    const style = getComputedStyle(element);
    for (const name of properties) {
      const value = style.getPropertyValue(name);
      if (value && !(name === "opacity" && value === "1")) element.setAttribute(name, value);
    }
    element.removeAttribute("class");
  }
  copy.querySelectorAll("[visibility=hidden]").forEach((e) => e.remove());
  copy.removeAttribute("tabindex");
  copy.removeAttribute("class");
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.prepend(s("title", {}, doc.title || ""));
  const text = new XMLSerializer().serializeToString(copy);
  holder.remove();
  return text + "\n";
}
