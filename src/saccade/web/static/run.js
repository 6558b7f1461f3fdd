// One run: how far it is or how it ended, its curve, what was asked, where it ran, what was measured.

import { badge, h, renew } from "./dom.js";
import { STATIC, get } from "./data.js";
import { ago, duration, number, plural, value } from "./format.js";
import { figure } from "./figure.js";
import { onChange } from "./live.js";
import { SIGNS, progress } from "./runs.js";

export async function show(root, route, { address }) {
  const key = route.parts[0] || "";
  let run = await get(`run/${key}`), timer = 0, closed = false, figureView = {}; // figureView: which lines are hidden, which axes are logarithmic
  draw();
  const again = async () => {
    try {
      const next = await get(`run/${key}`);
      if (closed) return;
      if (JSON.stringify(next) !== JSON.stringify(run)) { run = next; draw(); }
    } catch { /* the banner says it */ }
    schedule();
  };
  const schedule = () => { clearTimeout(timer); if (!closed && !STATIC && ["running", "waiting"].includes(run.state)) timer = setTimeout(again, 1200); };
  schedule();
  const off = onChange(again);
  return { title: `${run.arm || run.model || "run"} ${key}`, close: () => { closed = true; clearTimeout(timer); off(); } };

  function draw() {
    const name = run.arm || run.model || key;
    renew(root,
      h("header.head", {},
        h("p.over", {}, h("a", { href: "#/runs" }, "Runs"), ` / ${key}`),
        h("h1", {}, name, run.seed !== undefined ? h("span.light-part", {}, ` seed ${run.seed}`) : null),
        h("p.lead", {}, run.study ? [h("a", { href: address("study", [run.study, run.scale]) }, run.study), `, ${run.scale} scale`] : run.data || "")),
      run.damaged.length ? h("div.note.bad", {}, h("b", {}, "Damaged: "), run.damaged.join(", "), h("p", {}, "What does not match its checksum is never used. Do the run again with ", h("code", {}, "saccade run … --redo-damaged"), ", or look at every file with ", h("code", {}, "saccade lab verify"), ".")) : null,
      h("div.facts", {}, state(), run.seconds !== undefined ? tile("trained for", duration(run.seconds)) : tile("time left", run.left !== undefined ? `about ${duration(run.left)}` : "–"),
        run.steps !== undefined ? tile("steps", number(run.steps)) : tile("trained", run.share !== undefined ? `${Math.round(100 * run.share)} %` : "–"),
        tile("parameters", parameters()), tile("started", run.started ? ago(run.started) : run.imported ? "elsewhere" : "–")),
      run.reason ? h("p.stopped", {}, run.state === "finished" ? "Stopped by its rule: " : `${run.state[0].toUpperCase()}${run.state.slice(1)}: `, h("b", {}, run.reason), ".") : null,
      run.imported ? h("p.stopped", {}, "Imported: its rows and curve are here, its weights are not.") : null,
      seeds(), curve(), look(), measured(), h("div.two", {}, settings(), environment()), log());
  }

  function state() {
    return h("div.fact", {}, h("small", {}, "state"), run.state === "running" ? h("div", {}, badge("running", "running", SIGNS.running), progress(run)) : badge(run.state, run.state, SIGNS[run.state]));
  }
  function tile(label, text) { return h("div.fact", {}, h("small", {}, label), h("b", {}, text)); }
  function parameters() {
    const row = run.measured.flatMap((m) => m.rows).find((r) => r.metric === "parameters");
    return row ? number(row.value) : "–";
  }

  function seeds() {
    if (!run.seeds || run.seeds.length < 2) return null;
    return h("p.seeds-line", {}, "Other seeds of the same: ", run.seeds.map((one) => h("a.seed-link", { href: address("run", [one.run]), class: `seed-link ${one.state}`, "aria-current": one.run === key ? "true" : null, title: one.state }, one.seed)),
      " ", h("a", { href: address("groups", [], { q: `group:${run.group}` }) }, "as a group"));
  }

  function curve() {
    if (!run.curve.length) return run.state === "waiting" || run.state === "running" ? h("p.note", {}, "Its first point comes after a fortieth of its budget.") : null;
    const splits = [...new Set(run.curve.map((p) => p.split))];
    const families = { online: "other" };
    const lines = splits.map((split, i) => {
      const points = run.curve.filter((p) => p.split === split);
      return {
        label: split === "online" ? "on each batch before it was learned" : `on ${split} (${points[0].n} images)`, family: families[split] || ["cnn", "attention", "vit"][i % 3], dash: split === "online" ? "dotted" : "solid", shade: 0.5, missing: 0, why: "", single: true,
        x: points.map((p) => p.images), estimates: points.map((p) => ({ value: p.accuracy, low: null, high: null, n: 1, method: "t", level: 0.95 })), seeds: points.map(() => []),
      };
    });
    const data = { kind: "Curves", title: "Accuracy while training", y_label: "accuracy", y_log: false, y_percent: true, note: "", panels: [{ title: "", lines, x_label: "images seen", x_log: null, x_down: false, marks: [], fits: [] }] };
    const rows = [["images", "split", "accuracy", "n"], ...run.curve.map((p) => [p.images, p.split, p.accuracy, p.n])];
    return figure({ name: `curve-${key}`, title: "Accuracy while training", data, told: `last: ${splits.map((sp) => { const last = run.curve.filter((p) => p.split === sp).pop(); return `${sp} ${(100 * last.accuracy).toFixed(1)} %`; }).join(", ")}`, csvText: () => rows.map((r) => r.join(",")).join("\n") + "\n" }, { ...figureView, level: 2, onview: (view) => (figureView = view), caption: run.state === "running" ? "This figure grows while the run trains." : "" });
  }

  function look() {
    if (!run.weights && !run.saved) return null;
    return h("p", {}, h("a.button", { href: address("look", [], { a: key }) }, "Look at what it sees"));
  }

  function measured() {
    const blocks = run.measured.filter((m) => m.rows.length);
    if (!blocks.length) return null;
    return h("section", {}, h("h2", {}, "Measured"), blocks.map((m) => {
      const names = [...new Set(m.rows.flatMap((r) => Object.keys(r.at)))].filter((n) => n !== "budget_share" || m.rows.some((r) => r.at[n] !== m.share));
      const rows = m.rows.slice(0, 600);
      return h("details", { open: m.share === 1 && m.probe !== "training" && rows.length < 14 }, h("summary", {}, `${m.probe}`, m.share < 1 ? ` at ${100 * m.share} % of the budget` : "", h("small", {}, ` ${plural(m.rows.length, "row")}${m.images ? `, ${plural(m.images, "image")}` : ""}`)),
        h("div.scroll", { tabindex: "0", role: "region", "aria-label": m.probe }, h("table.numbers", {},
          h("thead", {}, h("tr", {}, ["metric", ...names, "value", "n"].map((t) => h("th", { scope: "col" }, t)))),
          h("tbody", {}, rows.map((r) => h("tr", {}, h("th", { scope: "row" }, r.metric), names.map((n) => h("td", {}, value(r.at[n]))), h("td", {}, number(r.value, 5)), h("td", {}, number(r.n))))))));
    }));
  }

  function settings() {
    const spec = run.spec;
    if (!spec) return null;
    const part = (title, entries) => (entries.length ? [h("h3.minor", {}, title), h("dl", {}, entries.map(([k, v]) => [h("dt", {}, k), h("dd", {}, value(v))]))] : null);
    return h("section", {}, h("h2", {}, "What was asked"),
      part("Model", [["model", spec.model], ...Object.entries(spec.model_args)]),
      part("Data", [["data", spec.data], ...Object.entries(spec.data_args)]),
      part("Recipe", [...Object.entries(spec.recipe), ["seed", spec.seed], ["training version", spec.version]]));
  }

  function environment() {
    const facts = run.facts;
    if (!facts || !Object.keys(facts).length) return null;
    const sums = facts.data || {};
    return h("section", {}, h("h2", {}, "Where it ran"),
      h("dl", {}, Object.entries(facts).filter(([k, v]) => k !== "data" && says(v)).map(([k, v]) => [h("dt", {}, k), h("dd", {}, value(v))])),
      Object.keys(sums).length ? [h("h3.minor", {}, "Data, by the first half of their SHA-256"), h("dl.mono", {}, Object.entries(sums).flatMap(([name, arrays]) => Object.entries(arrays).map(([k, v]) => [h("dt", {}, `${name} ${k}`), h("dd", {}, h("code", {}, v))])))] : null);
  }

  function log() {
    if (!run.log.length) return null;
    return h("details", {}, h("summary", {}, `Log: ${plural(run.log.length, "event")}`), h("ul.log", {}, run.log.map((e) => h("li", {}, h("time", {}, e.time ? new Date(1000 * e.time).toISOString().replace("T", " ").slice(0, 19) : ""), ` ${e.event} `, h("small", {}, Object.entries(e).filter(([k]) => !["time", "event", "trace", "pid"].includes(k)).map(([k, v]) => `${k} ${value(v)}`).join(", ")), e.trace ? h("pre", {}, e.trace) : null))));
  }
}

// Whether there is anything to show: nothing came from outside the package is {code: {}, content: {}}.
const says = (v) => v !== null && v !== "" && (typeof v !== "object" || Object.values(v).some(says));
