// All studies: what each asks, what this lab has of it, and what came out.

import { h, renew, copyable } from "./dom.js";
import { STATIC, get } from "./data.js";
import { inLab, plural } from "./format.js";
import { onChange } from "./live.js";

export async function show(root, route, { address, lab }) {
  const cards = await get("studies");
  let timer = 0;
  const again = async () => {
    clearTimeout(timer);
    try { draw(await get("studies")); } catch { /* the banner says it */ }
  };
  draw(cards);
  const off = onChange(again);
  return { title: "Studies", close: () => { off(); clearTimeout(timer); } };

  function draw(cards) {
    if (!STATIC && cards.some((c) => c.sittings.some((t) => t.judging))) timer = setTimeout(again, 1500);
    const withResults = cards.filter((c) => c.sittings.length), without = cards.filter((c) => !c.sittings.length);
    renew(root,
      h("header.head", {},
        h("p.over", {}, lab.root),
        h("h1", {}, withResults.length ? "What this lab has found" : "An empty lab"),
        h("p.lead", {}, withResults.length
          ? "Published claims about vision models, run again with paired seeds. Open a study for its verdicts, its figures and how each number was made."
          : "Nothing has been run here yet. One of these commands fills it; this page follows while it runs."),
        withResults.length ? null : [copyable(inLab("saccade run digits_on_backgrounds --scale smoke", lab)),
          lab.shipped?.length ? h("p", {}, h("a", { href: address("look") }, "Or look at trained models that come with saccade"), ", before anything is trained.") : null]),
      h("div.cards", {}, withResults.map((c) => card(c, address))),
      without.length ? h("section", {},
        h("h2", {}, withResults.length ? "Not run in this lab" : "Studies"),
        h("ul.plain", {}, without.map((c) => h("li.ask", {},
          h("div", {}, h("b", {}, c.question), h("small", {}, `${c.paper ? c.paper.citation + ". " : ""}${plural(c.claims, "claim")}.`)),
          copyable(inLab(c.command, lab)))))) : null);
  }
}

function card(c, address) {
  return h("article.card.study", {},
    h("h2", {}, h("a", { href: address("study", [c.name, best(c).folder]) }, c.question)),
    c.paper ? h("p.cite", {}, c.paper.citation) : null,
    h("ul.sittings", {}, c.sittings.map((s) => sitting(c, s, address))));
}

const best = (c) => c.sittings[c.sittings.length - 1];

function sitting(c, s, address) {
  const changed = Object.entries(s.choices);
  return h("li", {},
    h("a.sitting", { href: address("study", [c.name, s.folder]) },
      h("span.scale", {}, s.scale, changed.length ? h("small", {}, changed.map(([k, v]) => `${k}=${v}`).join(" ")) : null),
      s.counts.length ? share(s.counts) : h("span.share.none", {}),
      h("span.sum", { "aria-hidden": "true" }, s.counts.length ? s.counts.map((n) => h(`span.count.${n.look}`, { title: `${n.n} ${n.counted}` }, h("i", { "aria-hidden": "true" }, n.sign), `${n.n}`)) : null),
      h("span.runs", {}, s.counts.length ? `${s.counts.map((n) => `${n.n} ${n.counted}`).join(", ")} · ` : null, s.running ? h("span.live", {}, `${s.done} of ${s.runs} runs, ${s.running} training`) : s.done < s.runs ? `${s.done} of ${s.runs} runs` : plural(s.runs, "run"), s.judging ? ", judging…" : "",
        s.procedural ? h("small.warn", {}, "synthetic data") : null)));
}

export function share(counts) {
  const total = counts.reduce((a, c) => a + c.n, 0);
  return h("span.share", { role: "img", "aria-label": counts.map((c) => `${c.n} ${c.counted}`).join(", ") },
    counts.map((c) => h(`i.${c.look}`, { style: { flex: String(c.n / total) } })));
}
