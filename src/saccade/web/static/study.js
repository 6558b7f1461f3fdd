// One study at one scale: verdict by verdict, figure by figure, and everything behind them.

import { badge, copyable, h, put, renew, s } from "./dom.js";
import { get, href } from "./data.js";
import { duration, finite, inLab, interval, number, p as asP, plural, value } from "./format.js";
import { figure } from "./figure.js";
import { onChange } from "./live.js";
import { share } from "./studies.js";
import { linear, smallest, largest } from "./scales.js";

export async function show(root, route, { address, follow, lab }) {
  const [name, folder] = route.parts;
  let query = { ...route.query };
  let doc, cards;
  const load = async () => ([doc, cards] = await Promise.all([get(`study/${name}/${folder}`), get("studies")]));
  await load();
  const go = (change) => {
    query = { ...query, ...change };
    follow("study", [name, folder], query);
  };
  draw();
  if (query.claim) document.getElementById(anchor(query.claim))?.scrollIntoView();
  else if (query.figure) document.getElementById(`figure-${query.figure}`)?.scrollIntoView();
  const off = onChange(async () => {
    try {
      const before = JSON.stringify(doc);
      await load();
      if (JSON.stringify(doc) !== before) draw();
    } catch { /* the banner says it */ }
  });
  return {
    title: doc.question,
    close: off,
    update: (next) => next.parts[0] === name && next.parts[1] === folder && ((query = { ...next.query }), draw(), true),
  };

  function draw() {
    const at = window.scrollY;
    const card = cards.find((c) => c.name === name);
    renew(root,
      doc.loud ? h("p.loud", { role: "note" }, doc.loud) : null,
      h("header.head", {},
        h("p.over", {}, h("a", { href: "#/" }, "Studies"), ` / ${doc.study}`),
        h("h1", {}, doc.question),
        h("p.lead", {}, doc.paper ? ["After ", doc.paper.url ? h("a", { href: doc.paper.url, rel: "noreferrer" }, doc.paper.citation) : doc.paper.citation] : "A study of one's own: its claims hold or do not."),
        scales(card),
        sections()),
      verdicts(),
      figures(),
      differences(),
      choices(),
      how());
    window.scrollTo(0, at);
  }

  function scales(card) {
    if (!card || card.sittings.length < 2) return h("p.tag", {}, `${doc.scale} scale`);
    return h("div.tabs", { role: "group", "aria-label": "Scale" }, card.sittings.map((t) =>
      h("a.tab", { href: address("study", [name, t.folder]), "aria-current": t.folder === folder ? "true" : null },
        t.scale, Object.keys(t.choices).length ? h("small", {}, ` ${Object.entries(t.choices).map(([k, v]) => `${k}=${v}`).join(" ")}`) : null)));
  }

  function sections() {
    const jump = (id) => (e) => { e.preventDefault(); const target = document.getElementById(id); target.scrollIntoView(); target.querySelector("h2")?.focus?.(); };
    return h("nav.sections", { "aria-label": "On this page" }, [["Verdicts", "verdicts"], ["Figures", "figures"], ["Differences", "differences"], ["Open choices", "choices"], ["How it was made", "how"]]
      .map(([label, id]) => h("a", { href: address("study", [name, folder]), onclick: jump(id) }, label)));
  }

  function verdicts() {
    const chosen = query.says || "";
    const list = h("div.claims", {}, rows());
    function rows() {
      const selected = doc.claims.filter((c) => !query.says || c.look === query.says);
      const scale = common(doc.claims);
      const one = (c) => claim(c, scale, query.claim === c.id, (open) => (open || query.claim === c.id) && go({ claim: open ? c.id : "" }));
      const now = selected.filter((c) => c.evidence), later = selected.filter((c) => !c.evidence);
      if (!now.length || !later.length) return selected.map(one);
      const why = [...new Set(later.map((c) => c.reason || c.says))].join(", ");
      return [now.map(one), h("h3.later", {}, `Without numbers yet: ${later.length}`, h("small", {}, ` ${why}`)), later.map(one)];
    }
    const tiles = h("ul.tiles", {}, doc.counts.map((c) => h("li", {},
      h(`button.tile.${c.look}`, {
        type: "button", "aria-pressed": String(chosen === c.look),
        onclick: (e) => {
          const on = query.says === c.look;
          go({ says: on ? "" : c.look });
          tiles.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", String(b === e.currentTarget && !on)));
          put(list, rows());
        },
      }, h("b", {}, c.n, h("i", { "aria-hidden": "true" }, ` ${c.sign}`)), c.counted, c.look === "undecided" ? h("small", {}, reasons(doc.claims)) : null))));
    return h("section", { id: "verdicts" },
      h("h2", { tabindex: "-1" }, "Verdicts"),
      h("p", {}, doc.summary, " ", doc.reading),
      (doc.facts.remarks || []).map((r) => h("p.note", {}, r)),
      doc.empty ? h("p.note", {}, "No run of this study has finished yet; this page follows while they train.") : null,
      tiles, share(doc.counts),
      h("div.claims-head", { "aria-hidden": "true" }, h("span", {}, "claim"), h("span", {}, "paper found"), h("span", {}, "ours"), h("span", {}, "verdict")),
      list,
      doc.gaps.length ? gaps(doc.gaps) : null);
  }

  function gaps(list) {
    const by = new Map();
    for (const g of list) by.set(g.why, [...(by.get(g.why) || []), g]);
    return h("details.quiet.gaps", {}, h("summary", {}, `${plural(list.length, "run")} without a result`),
      h("ul", {}, [...by].map(([why, some]) => h("li", {}, `${why}: `, some.slice(0, 60).map((g, i) => [i ? ", " : "", h("a", { href: address("run", [g.run]) }, `${g.arm} seed ${g.seed}`)])))));
  }

  function figures() {
    return h("section", { id: "figures" }, h("h2", { tabindex: "-1" }, "Figures"),
      doc.figures.map((f, i) => figure(
        { ...f, csv: href(`study/${name}/${folder}/${f.name}.csv`) },
        {
          id: `figure-${f.name}`, heading: `Figure ${i + 1}. ${f.title}`,
          hidden: query.figure === f.name && query.hide ? query.hide.split("|") : [],
          ylog: query.figure === f.name && query.ylog !== undefined ? query.ylog === "1" : undefined,
          xlog: query.figure === f.name && query.xlog !== undefined ? query.xlog === "1" : undefined,
          onview: (view) => go({ figure: f.name, hide: [...view.hidden].join("|"), ylog: view.ylog === undefined ? "" : Number(view.ylog), xlog: view.xlog === undefined ? "" : Number(view.xlog) }),
        })));
  }

  function differences() {
    return h("section", { id: "differences" }, h("h2", { tabindex: "-1" }, "Differences from the paper"),
      doc.differs.length ? h("ul", {}, doc.differs.map((d) => h("li", {}, d.text,
        h("small", {}, d.touches.length ? ["may touch ", d.touches.map((t, i) => [i ? ", " : "", h("a", { href: address("study", [name, folder], { claim: t }) }, t)])] : "may touch every claim"))))
        : h("p", {}, "None known."));
  }

  function choices() {
    return h("section", { id: "choices" }, h("h2", { tabindex: "-1" }, "Open choices"),
      doc.choices.length ? h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Open choices" }, h("table", {},
        h("thead", {}, h("tr", {}, ["choice", "taken", "alternatives", "about"].map((t) => h("th", { scope: "col" }, t)))),
        h("tbody", {}, doc.choices.map((c) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, c.name)),
          h("td", {}, c.taken === "" ? "–" : h("code", {}, value(c.taken)), JSON.stringify(c.taken) === JSON.stringify(c.default) ? null : h("small", {}, `default: ${value(c.default)}`)),
          h("td", {}, c.known.filter((k) => JSON.stringify(k) !== JSON.stringify(c.taken)).map(value).join(", ") || "any"), h("td", {}, c.about))))))
        : h("p", {}, "The paper leaves nothing open that this study had to choose."));
  }

  function how() {
    const facts = doc.facts;
    const pairs = [];
    const runs = ["done", "diverged", "timeout", "failed"].filter((k) => facts[k]).map((k) => `${facts[k]} ${k}`).join(", ");
    pairs.push(["Scale", doc.scale], ["Runs", `${facts.runs} planned${runs ? `, ${runs}` : ""}`]);
    for (const [k, v] of Object.entries(facts)) {
      if (["scale", "runs", "done", "diverged", "timeout", "failed", "procedural", "environments", "data", "remarks"].includes(k)) continue;
      pairs.push([k.endsWith("seconds") ? `${k.slice(0, -7)}time` : k, k.endsWith("seconds") ? duration(v) : value(v)]);
    }
    for (const [k, v] of Object.entries(facts.data || {})) pairs.push([`Data: ${k}`, value(v)]);
    (facts.environments || []).forEach((e, i) => pairs.push([facts.environments.length > 1 ? `Environment ${i + 1}` : "Environment", value(e)]));
    return h("section", { id: "how" }, h("h2", { tabindex: "-1" }, "How it was made"),
      h("p", {}, "This command makes it again; what is in the lab is not repeated."), copyable(inLab(doc.command, lab)),
      h("p", {}, h("a", { href: address("runs", [], { q: `study:${name} scale:${doc.scale}` }) }, "Every run behind it")),
      h("details", {}, h("summary", {}, "How the numbers were made"), h("ul", {}, doc.method.map((m) => h("li", {}, m)))),
      h("details", {}, h("summary", {}, "Runs and environment"), h("dl", {}, pairs.map(([k, v]) => [h("dt", {}, k[0].toUpperCase() + k.slice(1)), h("dd", {}, v)]))));
  }
}

const NO_ROWS = "no rows"; // what a requirement says of an arm that was not run
const anchor = (id) => `claim-${id.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;

// Percentage points of accuracy or error, and not per pixel or doubling.
const inPoints = (e) => e.unit === "points" && !e.per;

// One scale for all claims in percentage points, so that sizes can be compared down the list.
function common(claims) {
  const all = claims.map((c) => c.evidence).filter((e) => e && inPoints(e) && e.estimate.method !== "exact");
  const values = all.flatMap((e) => [e.estimate.value, ...[e.estimate.low, e.estimate.high].filter(finite).map((v) => Math.max(-1.2, Math.min(1.2, v)))]);
  const top = Math.max(0.05, largest([...values, 0])), bottom = Math.min(-0.05, smallest([...values, 0]));
  return [bottom, top];
}

function claim(c, scale, open, toggled) {
  const e = c.evidence;
  const details = h("details.claim", { id: anchor(c.id), open, ontoggle: () => { if (details.open && !body.childNodes.length) put(body, detail(c)); toggled(details.open); } },
    h("summary", {},
      h("span.what", {}, h("b", {}, c.id), h("span", {}, c.statement)),
      h("span.paper", {}, h("small.narrow", {}, "paper found"), c.paper || "–"),
      h("span.ours", {}, strip(e, scale), h("span.num", {}, e ? e.ours : "–", e && e.unit && e.estimate.method !== "exact" ? h("small", {}, e.unit_in_words) : null)),
      h("span.says", {}, badge(c.says, c.look, c.sign), c.reason ? h("small", {}, c.reason) : null)),
    h("div.claim-body", {}));
  const body = details.lastChild;
  if (open) put(body, detail(c));
  return details;
}

// As in "9 still moving, 7 not learned".
function reasons(claims) {
  const by = new Map();
  for (const c of claims) if (c.look === "undecided" && c.reason) by.set(c.reason, (by.get(c.reason) || 0) + 1);
  return [...by].sort((a, b) => b[1] - a[1]).map(([why, n]) => `${n} ${why}`).join(", ");
}

// Zero, interval, single seeds and mean, on one line.
function strip(e, scale, width = 168) {
  if (!e || !finite(e.estimate.value) || e.estimate.method === "exact") return null;
  const { value: v, low, high } = e.estimate;
  const zero = e.null, each = e.each.map((one) => one.value);
  const ends = [v, zero, low, high, ...each].filter(finite);
  const domain = inPoints(e) && scale ? scale : [smallest(ends), largest(ends)];
  const pad = 0.06 * (domain[1] - domain[0] || 1);
  const x = linear([domain[0] - pad, domain[1] + pad], [4, width - 4]);
  const clamp = (t) => Math.max(3, Math.min(width - 3, x(t)));
  return s("svg.strip", { viewBox: `0 0 ${width} 22`, width, height: 22, "aria-hidden": "true" },
    s("line.zero", { x1: x(zero), x2: x(zero), y1: 1, y2: 21 }),
    s("line.base", { x1: 2, x2: width - 2, y1: 11, y2: 11 }),
    finite(low) && finite(high) ? s("line.reach", { x1: clamp(low), x2: clamp(high), y1: 11, y2: 11 }) : null,
    e.margin ? s("rect.margin", { x: clamp(zero - e.margin), width: Math.max(1, clamp(zero + e.margin) - clamp(zero - e.margin)), y: 3, height: 16 }) : null,
    each.map((t) => s("circle.seed", { cx: clamp(t), cy: 11 + 5.5, r: 1.7 })),
    s("circle.mean", { cx: clamp(v), cy: 11, r: 4 }));
}

function detail(c) {
  const e = c.evidence;
  const pairs = [["Paper concluded", c.concluded || "–"], ["Paper found", c.paper || "–"], ["Tested", c.tested], ["Ours", e ? `${e.ours} ${e.unit_in_words}` : "–"]];
  if (e) {
    if (e.each.length) pairs.push(["Single seeds", e.each.map((one) => `${e.unit === "points" ? (100 * one.value).toFixed(1) : number(one.value)} (seed ${one.seed})`).join(", ")]);
    pairs.push(["Test", `${e.method} (interval: ${e.estimate.method})`]);
    pairs.push(["p", e.estimate.method === "exact" ? "exact" : `${asP(e.p)} testing for the relation, ${asP(e.p_against)} for its opposite${finite(c.p_adjusted) ? `; ${asP(c.p_adjusted)} two-sided after Holm` : ""}`]);
    if (e.seeds_needed) pairs.push(["Seeds needed", `about ${e.seeds_needed}, before Holm`]);
  }
  if (e?.limit) pairs.push(["Limit", e.limit]);
  if (c.family) pairs.push(["Family", c.family]);
  if (c.registered) pairs.push(["Registered", c.registered]);
  if (c.looked) pairs.push(["Look", c.looked]);
  if (c.remark) pairs.push(["Remark", c.remark]);
  return [
    h("dl", {}, pairs.map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)])),
    c.requirements.length ? [h("h3.minor", {}, "Requirements"), h("ul.requirements", {}, c.requirements.map((r) => h(`li.${r.met ? "met" : "unmet"}`, {}, h("i", { "aria-hidden": "true" }, r.met ? (r.found === NO_ROWS ? "–" : "✓") : "✗"), h("span", {}, h("span.unseen", {}, r.met ? "met: " : "not met: "), r.asks, h("small", {}, r.met && r.found === NO_ROWS ? "not asked: this scale leaves this arm out" : r.found)))))] : null,
    c.by_budget.length > 1 ? [h("h3.minor", {}, "Against the training budget"), budget(c)] : null,
    e && e.parts.length ? [h("h3.minor", {}, "What the claim is made of"), h("ul.parts", {}, e.parts.map((part, i) => h("li", {}, strip(part, null, 120), h("span", {}, part.note || `part ${i + 1}`, h("small", {}, `${part.ours}, p ${asP(part.p)}, ${part.method}`)))))] : null,
    c.differs.length ? [h("h3.minor", {}, "Differences from the paper that may touch this claim"), h("ul", {}, c.differs.map((d) => h("li", {}, d)))] : null,
  ];
}

// The estimate after a half, three quarters and all of the images: is it still moving?
function budget(c) {
  const percent = c.evidence?.unit === "points", points = c.by_budget.filter((b) => b.estimate && finite(b.estimate.value));
  const line = {
    label: "ours", family: "other", dash: "solid", shade: 0.5, missing: 0, why: "", ink: "var(--accent)",
    x: points.map((b) => 100 * b.share), estimates: points.map((b) => b.estimate), seeds: points.map(() => []),
  };
  const data = { kind: "Curves", title: "", y_label: percent ? "percentage points" : c.evidence?.unit || "estimate", y_log: false, y_percent: percent, note: "", whole: true, panels: [{ title: "", lines: [line], marks: [], fits: [], x_label: "share of the budget (%)", x_log: null }] };
  return h("div.small-figure", {}, figure({ name: `${c.id}-budget`, title: `${c.id} against the budget`, data, told: points.map((b) => `${100 * b.share} %: ${interval(b.estimate, percent)}`).join("; ") }, { plain: true, caption: "" }));
}
