// The page: addresses behind the #, one module per kind of page, and what is always in view.

import { h, put, empty } from "./dom.js";
import { STATIC, get } from "./data.js";
import { setFamilies } from "./colours.js";
import { plural } from "./format.js";
import * as live from "./live.js";
import * as studies from "./studies.js";
import * as study from "./study.js";
import * as runs from "./runs.js";
import * as run from "./run.js";
import * as look from "./look.js";
import * as profile from "./profile.js";
import { setStatistics } from "./stats.js";

const PAGES = { "": studies, study, runs, groups: runs, run, look, profile };
const TABS = { "": "studies", study: "studies", runs: "runs", groups: "runs", run: "runs", look: "look", profile: "profile" };
const main = document.getElementById("main");
let open = null; // {page, close, update}
let writing = null;

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { page: parts[0] || "", parts: parts.slice(1), query: Object.fromEntries(new URLSearchParams(query)) };
}

// An address that was cut off in the middle of a letter is an unknown one, not an error.
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

export function address(page, parts = [], query = {}) {
  const parameters = Object.entries(query).filter(([, v]) => v !== undefined && v !== null && v !== "");
  const words = parameters.length ? "?" + new URLSearchParams(parameters) : "";
  return "#/" + [page, ...parts].filter(Boolean).map(encodeURIComponent).join("/") + words;
}

// The view changed by itself: the address follows, without a new page and without filling the history.
function follow(page, parts, query) {
  const hash = address(page, parts, query);
  if (hash === location.hash) return;
  writing = hash;
  history.replaceState(null, "", hash);
}

async function show() {
  const route = parse(location.hash);
  if (location.hash === writing) return;
  writing = null;
  const page = PAGES[route.page];
  document.querySelectorAll("header nav a").forEach((a) => {
    if (a.dataset.page === TABS[route.page]) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  });
  if (open && open.page === page && open.update && open.update(route)) return;
  open?.close?.();
  open = null;
  if (!page) {
    put(main, h("div.page", {}, empty("There is no such page", h("p", {}, h("a", { href: "#/" }, "All studies")))));
    document.title = "No such page · saccade explorer";
    show.moved = true;
    return;
  }
  const holder = h("div.page", {}, h("p.wait", {}, "Loading…"));
  put(main, holder);
  window.scrollTo(0, 0);
  const token = (show.token = {});
  try {
    const view = (await page.show(holder, route, { address, follow, lab })) || {};
    if (show.token !== token) return view.close?.();
    open = { page, ...view };
    document.title = `${view.title || "saccade"} · saccade explorer`;
    if (show.moved) main.focus({ preventScroll: true });
  } catch (error) {
    if (show.token !== token) return;
    const words = failed(error);
    put(holder, words);
    document.title = `${words.querySelector("h2").textContent} · saccade explorer`;
  }
  show.moved = true;
}

function failed(error) {
  const again = h("button", { type: "button", onclick: () => { writing = null; open = null; show(); } }, "Try again");
  if (error.status === 0) return empty("The server does not answer", h("p", {}, "Start it again with saccade serve in the same folder; this page then goes on by itself."), again);
  if (error.status === 404) return empty("Not found", h("p", {}, error.message), h("p", {}, h("a", { href: "#/" }, "All studies")));
  if (error.status === 409) return empty("A file is damaged", h("p", {}, error.message), h("p", {}, "Nothing damaged is ever shown as a result. saccade lab verify names every such file."), again);
  if (!error.status) console.error(error);
  return empty("This page could not be shown", h("p", {}, error.message), again);
}

const lab = {};

function themes() {
  const button = document.getElementById("theme");
  const names = { auto: "as the system has them", light: "light", dark: "dark" };
  const signs = { auto: "◐", light: "○", dark: "●" };
  const read = () => { try { return localStorage.getItem("saccade-colours") || "auto"; } catch { return "auto"; } };
  const set = (name) => {
    if (name === "auto") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", name);
    button.textContent = signs[name];
    button.setAttribute("aria-label", `Colours: ${names[name]}`);
    button.title = `Colours: ${names[name]}`;
    try { localStorage.setItem("saccade-colours", name); } catch { /* private windows may refuse */ }
  };
  button.addEventListener("click", () => set({ auto: "light", light: "dark", dark: "auto" }[read()]));
  set(read() in names ? read() : "auto");
}

function pulse() {
  const mark = document.getElementById("pulse");
  const tell = (now) => {
    const running = now?.states?.running || 0;
    const total = Object.values(now?.states || {}).reduce((a, b) => a + b, 0);
    mark.classList.toggle("on", running > 0);
    put(mark, STATIC ? "a saved copy" : !now?.complete ? "reading the lab…" : running ? `${running} training` : plural(total, "run"));
  };
  tell(live.pulse());
  live.onChange(tell);
  live.onChange((now, restarted) => restarted && (writing = null, (open = null), show()));
}

async function begin() {
  themes();
  pulse();
  live.start();
  try {
    Object.assign(lab, await get("lab"));
    setFamilies(lab.families);
    setStatistics(lab);
    put(document.getElementById("about"), `saccade ${lab.saccade} · lab in ${lab.root}`, STATIC ? `, saved ${lab.saved || ""}` : "");
  } catch (error) {
    put(main, h("div.page", {}, failed(error)));
    const off = live.onChange(() => { off(); begin(); });
    return;
  }
  addEventListener("hashchange", show);
  show();
}

// A page that failed because the server was gone shows itself again once it is back.
live.onChange(() => { if (!open && main.querySelector(".empty")) { writing = null; show(); } });

begin();
