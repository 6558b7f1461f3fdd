// Look: two models and one image. Every change of the image shows at once in what both models answer.

import { h, put, empty, announce, copyable } from "./dom.js";
import { STATIC, post } from "./data.js";
import { inLab, number, scaled } from "./format.js";
import * as store from "./store.js";
import { candidates, picker } from "./picker.js";
import { STILL, stage } from "./stage.js";
import { contours, features, looking } from "./maps.js";
import { colour } from "./colours.js";
import * as saved from "./savedlook.js";

const LETTERS = ["A", "B"];
const COLOURS = { black: [0, 0, 0], grey: [128, 128, 128], white: [255, 255, 255], red: [180, 40, 40], green: [40, 130, 60], blue: [40, 70, 160] };

const UNITS = { dx: (v) => `${v} px`, dy: (v) => `${v} px`, turn: (v) => `${v}°`, scale: (v) => `${Math.round(100 * v)} %` };

export async function show(root, route, { follow, address, lab }) {
  let rows;
  if (STATIC) rows = await saved.open().then((l) => l?.rows || []);
  else { await store.load(); rows = candidates(lab); }
  if (!rows.length) {
    if (!STATIC && !store.isComplete()) put(root, h("p.wait", {}, "Reading the lab…"));
    else put(root, STATIC ? empty("No models in this export", h("p", {}, "It was written without a Look page."))
      : empty("No trained model yet", h("p", {}, "This page needs a finished run. The smallest study trains eight models in a minute:"), copyable(inLab("saccade run digits_on_backgrounds --scale smoke", lab))));
    let inner = null;
    const off = store.onRows(async () => { if (candidates(lab).length || store.isComplete()) { off(); inner = await show(root, route, { follow, address, lab }); } });
    return { title: "Look", close: () => { off(); inner?.close?.(); } };
  }
  const view = read(route.query);
  if (!view.runs[0] || !rows.some((r) => r.run === view.runs[0])) view.runs[0] = view.runs[0] && !STATIC ? view.runs[0] : suggest(rows)[0];
  if (!view.runs[1]) view.runs[1] = suggest(rows, view.runs[0])[1];

  let stock = null, closed = false, loading = true, infos = [null, null];
  const times = [];
  const board = stage({
    moved: (move) => { view.move = move; changed(); },
    pointed: (query, pinned) => { view.query = query; view.pinned = pinned; changed(); },
    drawn: (ink) => { view.mode = "draw"; view.pixels = fromInk(ink); changed(); },
    dropped: (file) => takeFile(file),
  });
  const controls = h("div.look-controls", {}), readout = h("p.readout", { "aria-live": "off" }), images = h("div.shelf", {}), scenes = h("div.shelf", {}), speed = h("span.speed", { title: "From a change to what both models make of it: the median of the last ones" });
  const source = h("div.tabs.small", { role: "group", "aria-label": "Where the image comes from" });
  const notice = h("div", {});
  const panels = LETTERS.map((letter, i) => panel(letter, i));
  const file = h("input", { type: "file", accept: "image/*", hidden: true, onchange: () => file.files[0] && takeFile(file.files[0]) });
  put(root,
    h("header.head.compact", {}, h("h1", {}, "Look"), h("p.lead", {}, "Drag the object, turn it, scale it, change what is behind it. Point at a pixel to see where each head looks from there.")),
    notice,
    h("div.look", {},
      h("section.look-stage", { "aria-label": "The image" }, source, board.root, readout, controls,
        h("h2.shelf-title", {}, "Background"), scenes, h("h2.shelf-title", {}, "Image"), images, file),
      h("section.look-models", { "aria-label": "What the models make of it" }, panels.map((p) => p.root))));

  // -- asking: one request at a time, always the newest

  let busy = false, dirty = false, settled = 0;
  function changed() {
    // A new address for every step of a drag would cost more than drawing it, and browsers refuse too many.
    clearTimeout(settled);
    settled = setTimeout(() => { if (!closed) follow("look", [], write(view)); }, 150);
    drawControls();
    ask();
  }
  async function ask() {
    if (!infos.some(Boolean)) return;
    if (busy) { dirty = true; return; }
    busy = true;
    dirty = false;
    root.dataset.busy = "1";
    const began = performance.now();
    try {
      const shown = [0, 1].filter((i) => view.runs[i] && infos[i]); // one that cannot be shown does not stop the other
      const request = { models: shown.map((i) => ({ run: view.runs[i], state: view.states[i] || "", layers: view.layers[i] || undefined })), picture: picture(), query: view.query };
      const answer = STATIC ? await saved.see(request) : await post("look", request);
      if (closed) return;
      await paint(answer, shown);
      if (shown.length === view.runs.filter(Boolean).length) put(notice);
      times.push(performance.now() - began);
      if (times.length > 60) times.shift();
      const sorted = [...times].sort((a, b) => a - b), median = sorted[Math.floor(sorted.length / 2)];
      root.dataset.median = median.toFixed(1);
      if (!loading) root.dataset.answers = String(Number(root.dataset.answers || 0) + 1);
      put(speed, STATIC ? "from the saved grid" : `${median.toFixed(0)} ms`);
    } catch (error) {
      if (!closed && error.status) put(notice, h("p.note.bad", {}, error.message));
    } finally {
      busy = false;
      if (dirty && !closed) ask();
      else root.dataset.busy = "";
    }
  }

  function picture() {
    const p = { move: view.move };
    if (view.mode === "set" || !view.pixels) p.index = view.index;
    else p.pixels = view.pixels;
    if (view.scene) p.scene = view.scene;
    return p;
  }

  async function paint(answer, shown) {
    const src = `data:image/png;base64,${answer.png}`;
    board.show(src);
    board.set({ size: answer.size });
    const raw = await rawPixels(src, answer.size);
    answer.answers.forEach((a, k) => panels[shown[k]].paint(a, answer, raw));
    drawReadout(answer);
  }

  // -- the left side

  function drawReadout(answer) {
    const m = answer.snapped || view.move, parts = [];
    const names = stock?.classes || [];
    if (answer.label !== null && answer.label !== undefined && view.mode === "set") parts.push(h("b", {}, `${names[answer.label] ?? answer.label}`));
    else parts.push(h("b", {}, view.mode === "draw" ? "your drawing" : "your image"));
    if (m.dx) parts.push(`${Math.abs(m.dx)} px ${m.dx < 0 ? "left" : "right"}`);
    if (m.dy) parts.push(`${Math.abs(m.dy)} px ${m.dy < 0 ? "up" : "down"}`);
    if (m.turn) parts.push(`turned ${Math.abs(m.turn)}° ${m.turn < 0 ? "clockwise" : "anticlockwise"}`);
    if (m.scale !== 1) parts.push(`${Math.round(100 * m.scale)} % of its size`);
    put(readout, parts.flatMap((p, i) => [i ? ", " : "", p]), h("span.spacer", {}), speed);
  }

  function drawControls() {
    if (controls.contains(document.activeElement) && document.activeElement.type === "range") {
      for (const slider of controls.querySelectorAll("input")) slider.value = view.move[slider.name];
      for (const out of controls.querySelectorAll("output")) out.textContent = UNITS[out.dataset.of](view.move[out.dataset.of]);
      return;
    }
    const size = stock?.size || 32;
    const slider = (name, label, low, high, step) => h("label.slide", {}, h("span", {}, label), h("input", { type: "range", name, min: String(low), max: String(high), step: String(step), value: String(view.move[name]), oninput: (e) => { view.move = { ...view.move, [name]: Number(e.target.value) }; board.set({ move: view.move }); changed(); } }), h("output", { data: { of: name } }, UNITS[name](view.move[name])));
    const moved = Object.keys(STILL).some((k) => view.move[k] !== STILL[k]);
    put(controls, slider("dx", "right", -size / 2, size / 2, 1), slider("dy", "down", -size / 2, size / 2, 1), slider("turn", "turn", -180, 180, 5), slider("scale", "size", 0.3, 2, 0.05),
      h("button.quiet", { type: "button", disabled: !moved, onclick: () => { view.move = { ...STILL }; board.set({ move: view.move }); changed(); announce("the object is back in its place"); } }, "Put back"));
  }

  function drawSource() {
    const tab = (mode, text, act) => h("button.tab", { type: "button", "aria-current": view.mode === mode ? "true" : null, disabled: STATIC && mode !== "set", title: STATIC && mode !== "set" ? "Needs saccade serve: an export knows only its saved images" : null, onclick: act }, text);
    put(source,
      tab("set", "Test set", () => { view.mode = "set"; view.scene = null; use(); }),
      tab("draw", "Draw", () => { view.mode = "draw"; view.move = { ...STILL }; view.pixels = fromInk(new Float32Array(stock.size ** 2)); view.scene = view.scene || (stock.scenes[0] ? ref(stock.scenes[0]) : { colour: COLOURS.grey }); board.set({ ink: new Float32Array(stock.size ** 2) }); use(); announce("Draw on the image with the pointer"); }),
      tab("file", "File", () => file.click()),
      view.mode === "draw" ? [h("button.quiet", { type: "button", onclick: () => { board.set({ ink: new Float32Array(stock.size ** 2) }); view.pixels = fromInk(new Float32Array(stock.size ** 2)); changed(); } }, "Clear"),
        h("button.quiet", { type: "button", "aria-pressed": String(view.dragging), onclick: () => { view.dragging = !view.dragging; use(); } }, "Move")] : null);
  }

  const ref = (scene) => ({ split: scene.split, index: scene.index });
  const sameScene = (a, b) => JSON.stringify(a || null) === JSON.stringify(b || null);

  function drawShelves() {
    const pick = (scene, png, label, text) => h("button.thumb", { type: "button", "aria-pressed": String(sameScene(view.scene, scene)), "aria-label": label, title: label, onclick: () => { view.scene = scene; drawShelves(); changed(); } }, png ? h("img.pixels", { src: `data:image/png;base64,${png}`, alt: "" }) : h("span.swatch", { style: { background: text } }));
    const own = view.mode === "set" ? h("button.thumb.word", { type: "button", "aria-pressed": String(!view.scene), onclick: () => { view.scene = null; drawShelves(); changed(); } }, "its own") : null;
    const names = stock.classes;
    const trained = stock.scenes.filter((x) => x.behind !== null), unseen = stock.scenes.filter((x) => x.behind === null);
    put(scenes, own,
      trained.length ? h("div.shelf-part", {}, h("small", {}, "in training behind"), h("div", {}, trained.map((x) => h("span.captioned", {}, pick(ref(x), x.png, `in training behind ${names[x.behind]}`), h("small", {}, names[x.behind]))))) : null,
      unseen.length ? h("div.shelf-part", {}, h("small", {}, "never seen"), h("div", {}, unseen.map((x, i) => pick(ref(x), x.png, `a background that training never showed, ${i + 1}`)))) : null,
      STATIC ? null : h("div.shelf-part", {}, h("small", {}, "plain"), h("div", {}, Object.entries(COLOURS).map(([name, rgb]) => pick({ colour: rgb }, null, name, `rgb(${rgb.join(",")})`)))));
    put(images, stock.images.map((x) => h("button.thumb", { type: "button", "aria-pressed": String(view.mode === "set" && view.index === x.index), "aria-label": `test image ${x.index}, ${names[x.label]}`, title: names[x.label], onclick: () => { view.mode = "set"; view.index = x.index; use(); } }, h("img.pixels", { src: `data:image/png;base64,${x.png}`, alt: "" }))));
  }

  function use() {
    board.set({ mode: view.mode === "draw" && !view.dragging ? "draw" : "move", move: view.move, still: false });
    drawSource();
    drawShelves();
    changed();
  }

  async function takeFile(upload) {
    try {
      view.pixels = await fromFile(upload, stock.size);
      view.mode = "file";
      view.move = { ...STILL };
      view.scene = view.scene || { colour: COLOURS.grey };
      use();
    } catch {
      put(notice, h("p.note.bad", {}, `${upload.name} cannot be read as an image; PNG, JPEG, WebP and GIF work.`));
    }
  }

  // -- the right side

  function panel(letter, i) {
    const choose = picker(letter, async (key) => { view.runs[i] = key; view.layers[i] = null; view.states[i] = ""; await loadModel(i); if (i === 0) await loadStock(); changed(); });
    const states = h("div.states", {}), logits = h("div.logits", {}), maps = h("div.maps", {}), attends = h("div.attends", {}), centre = h("div.centres", {});
    const root = h("article.model-panel", { "aria-label": `Model ${letter}` }, h("h2.unseen", {}, `Model ${letter}`), choose.root, states, logits, attends, centre, maps);
    return {
      root,
      failed() {
        choose.set(rows, view.runs[i]);
        for (const part of [logits, maps, attends, centre]) put(part);
        put(states, h("p.quiet-note", {}, "This model cannot be shown; choose another."));
      },
      refresh() {
        choose.set(rows, view.runs[i]);
        const info = infos[i];
        if (!info) {
          put(states, h("p.quiet-note", {}, view.runs[i] ? "Loading…" : "There is no second model of these data; choose one."));
          return;
        }
        const stages = info.states, at = Math.max(0, stages.findIndex((s) => s.state === (view.states[i] || stages[stages.length - 1].state)));
        put(states, stages.length > 1 ? h("label.slide.training", {}, h("span", {}, "training"), h("input", { type: "range", min: "0", max: String(stages.length - 1), step: "1", value: String(at), "aria-valuetext": stages[at].label, oninput: async (e) => { view.states[i] = stages[Number(e.target.value)].state; e.target.setAttribute("aria-valuetext", stages[Number(e.target.value)].label); e.target.nextSibling.textContent = stages[Number(e.target.value)].label; await loadModel(i, false); changed(); } }), h("output", {}, stages[at].label)) : null);
      },
      paint(a, answer, raw) {
        const info = infos[i];
        if (!info) return;
        put(logits, bars(a, answer, info));
        put(attends, a.attention.length ? attention(a, raw, answer.size) : h("p.quiet-note", {}, info.attends ? "" : "This model has no attention to show."));
        put(centre, info.centres.length ? centresOf(info, answer.size) : null);
        put(maps, featureMaps(a, info, i));
      },
    };
  }

  function bars(a, answer, info) {
    const best = a.probabilities.indexOf(Math.max(...a.probabilities));
    const family = lab.models?.[info.model] || "other";
    const right = view.mode === "set" && answer.label !== null ? best === answer.label : null;
    const names = info.classes;
    return [
      h("p.says-line", {}, "says ", h("b", { class: right === null ? "" : right ? "right" : "wrong" }, names[best] ?? best), ` with ${scaled(a.probabilities[best], true, 0)} %`, right === null ? "" : right ? h("span.right", {}, " ✓") : h("span.wrong", {}, ` ✗ it is ${names[answer.label] ?? answer.label}`)),
      h("table.bars", { "aria-label": "Probabilities and logits" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span.unseen", {}, "class")), h("th", { scope: "col" }, "probability"), h("th", { scope: "col" }, "logit"))), h("tbody", {}, a.probabilities.map((p, k) => h("tr", { class: `${k === best ? "best" : ""} ${k === answer.label && view.mode === "set" ? "true-label" : ""}` },
        h("th", { scope: "row" }, names[k] ?? k), h("td.length", {}, h("span.unseen", {}, `${scaled(p, true, 1)} %`), h("i", { style: { width: `${100 * p}%`, background: colour(family) } })), h("td.num", { data: { logit: String(k) }, title: `logit ${a.logits[k].toPrecision(8)}` }, a.logits[k].toFixed(2)))))),
    ];
  }

  function attention(a, raw, size) {
    const from = a.attention[0].at ? (view.query ? (STATIC ? "from the nearest saved pixel" : `from pixel ${Math.floor(view.query.x)}, ${Math.floor(view.query.y)}`) : "from the middle") : "from the class token";
    return [h("h3", {}, "Attention ", h("small", {}, from)), a.attention.map((layer) => h("div.attention-layer", {}, h("small", {}, layer.name, layer.of > layer.shape[0] ? `, ${layer.shape[0]} of ${layer.of} heads` : ""),
      h("div.heads", {}, Array.from({ length: layer.shape[0] }, (_, k) => h("figure.head-map", { title: `head ${k + 1}: looks at about ${layer.effective[k].toFixed(1)} places${layer.kept.length ? `; ${(100 * layer.kept[k]).toFixed(0)} % stays on the class token` : ""}` }, framed(looking(layer, k, raw, size), layer, size))))))];
  }

  // The query's own place, marked on a head's map.
  function framed(canvas, layer, size) {
    if (!layer.at) return canvas;
    const [y, x] = layer.at.map((v, k) => layer.margin[k] + v * layer.stride[k]);
    return h("div.framed", {}, canvas, h("i.here", { style: { left: `${(100 * x) / size}%`, top: `${(100 * y) / size}%`, width: `${(100 * layer.stride[1]) / size}%`, height: `${(100 * layer.stride[0]) / size}%` } }));
  }

  function centresOf(info, size) {
    return [h("h3", {}, "Centres of the heads ", h("small", {}, "contours at one and two standard deviations")), h("div.heads.wide", {}, info.centres.map((layer) => h("figure.head-map", {}, contours(layer, size, view.query), h("figcaption", {}, layer.layer, beyond(layer, size)))))];
  }

  // Heads whose centre lies outside the image cannot be drawn; their number is shown.
  function beyond(layer, size) {
    const at = view.query || { x: size / 2, y: size / 2 };
    const away = layer.centre.filter(([down, right]) => { const y = at.y + down * layer.patch, x = at.x + right * layer.patch; return x < 0 || y < 0 || x > size || y > size; }).length;
    return away ? `: ${away} of ${layer.centre.length} heads look beyond the edge` : `: ${layer.centre.length} heads`;
  }

  function featureMaps(a, info, i) {
    if (!a.features.length) return info.layers.length ? null : h("p.quiet-note", {}, "No layer of this model gives a map of the image.");
    const names = view.layers[i] || info.chosen;
    const room = matchMedia("(max-width: 40rem)").matches ? 6 : 8;
    return [h("h3", {}, "Feature maps"), a.features.map((f, k) => h("div.feature-layer", {},
      h("label.layer-pick", {}, STATIC ? h("span", {}, f.name) : h("select", { "aria-label": `Layer ${k + 1}`, onchange: (e) => { const next = [...names]; next[names.indexOf(f.name)] = e.target.value; view.layers[i] = [...new Set(next)]; changed(); } }, info.layers.map((l) => h("option", { value: l.name, selected: l.name === f.name }, `${l.name} (${l.kind})`))),
        h("small", {}, ` ${f.of} × ${f.shape[1]} × ${f.shape[2]}${f.of > f.shape[0] ? `, the first ${f.shape[0]}` : ""}, ${number(f.low, 3)} to ${number(f.high, 3)}`)),
      features(f, Math.min(room, f.shape[0] <= 6 ? f.shape[0] : room))))];
  }

  // -- loading

  async function loadModel(i, refresh = true) {
    if (!view.runs[i]) return;
    try {
      infos[i] = STATIC ? await saved.about(view.runs[i], view.states[i]) : await post("look/stock", { run: view.runs[i], state: view.states[i] || "" });
      if (refresh) panels[i].refresh();
    } catch (error) {
      infos[i] = null;
      panels[i].failed();
      put(notice, h("p.note.bad", {}, `${LETTERS[i]}: ${error.message}`));
    }
  }
  async function loadStock() {
    stock = infos[0];
    if (!stock) return;
    board.set({ size: stock.size, move: view.move, query: view.query });
    if (!stock.images.some((x) => x.index === view.index) && STATIC) view.index = stock.images[0].index;
    use();
  }

  panels.forEach((p) => p.refresh());
  if (!STATIC) put(readout, "Loading the models; the first time takes a few seconds…");
  (async () => {
    await loadModel(0);
    if (closed) return;
    if (infos[0]) await loadStock(); // the image and what A makes of it, while B is loaded
    await loadModel(1);
    if (closed) return;
    loading = false;
    panels.forEach((p) => p.refresh());
    if (infos[0]) changed();
    else put(readout, "There is no image while model A cannot be shown; choose another.");
  })();
  const off = store.onRows(() => { rows = STATIC ? rows : candidates(lab); panels.forEach((p) => p.refresh()); });
  return { title: "Look", close: () => { closed = true; off(); } };
}

// -- addresses

function read(q) {
  const num = (text, start) => (text !== undefined && Number.isFinite(Number(text)) ? Number(text) : start);
  const at = q.q ? q.q.split(",").map(Number) : null;
  let scene = null;
  if (q.bg?.startsWith("rgb:")) scene = { colour: q.bg.slice(4).split(",").map(Number) };
  else if (q.bg) scene = { split: q.bg.split(":")[0], index: Number(q.bg.split(":")[1]) };
  return {
    runs: [q.a, q.b], states: [q.sa || "", q.sb || ""], layers: [q.la ? q.la.split(",") : null, q.lb ? q.lb.split(",") : null],
    index: num(q.i, 0), move: { dx: num(q.dx, 0), dy: num(q.dy, 0), turn: num(q.turn, 0), scale: num(q.scale, 1) }, scene,
    query: at && at.every(Number.isFinite) ? { x: at[0] + 0.5, y: at[1] + 0.5 } : null, pinned: Boolean(at),
    mode: q.px ? (q.src === "draw" ? "draw" : "file") : "set", pixels: q.px ? q.px.replace(/-/g, "+").replace(/_/g, "/") : null, dragging: q.src === "draw",
  };
}

function write(v) {
  const scene = !v.scene ? "" : v.scene.colour ? `rgb:${v.scene.colour.join(",")}` : `${v.scene.split}:${v.scene.index}`;
  return {
    a: v.runs[0], b: v.runs[1], sa: v.states[0], sb: v.states[1], la: v.layers[0]?.join(","), lb: v.layers[1]?.join(","),
    i: v.mode === "set" && v.index ? v.index : "", dx: v.move.dx || "", dy: v.move.dy || "", turn: v.move.turn || "", scale: v.move.scale !== 1 ? v.move.scale : "",
    bg: scene, q: v.query && v.pinned ? `${Math.floor(v.query.x)},${Math.floor(v.query.y)}` : "",
    px: v.mode !== "set" && v.pixels && v.pixels.length < 9000 ? v.pixels.replace(/\+/g, "-").replace(/\//g, "_") : "", src: v.mode === "set" ? "" : v.mode,
  };
}

// Two models that are worth seeing beside each other: of one data set, different families, trained longest.
function suggest(rows, first) {
  const finished = rows.filter((r) => r.state === "finished");
  const pool = finished.length ? finished : rows;
  const score = (r) => (r.images || 0) + (r.seed === 0 ? 0.5 : 0) + (r.backgrounds || 0) * 1e-3;
  const best = (list) => list.reduce((a, b) => (!a || score(b) > score(a) ? b : a), null);
  const a = first ? rows.find((r) => r.run === first) : best(pool.filter((r) => r.model === "lenet")) || best(pool);
  const like = (r) => r.run !== a?.run && r.data === a?.data;
  const other = pool.filter((r) => like(r) && r.model !== a?.model);
  const near = other.filter((r) => r.backgrounds === a?.backgrounds && r.images === a?.images);
  const b = best(near) || best(other) || best(pool.filter(like));
  return [a?.run, b?.run];
}

// -- pixels

async function rawPixels(src, size) {
  const image = new Image();
  image.src = src;
  await image.decode();
  const canvas = new OffscreenCanvas(size, size), context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0, size, size);
  return context.getImageData(0, 0, size, size).data;
}

function encode(raw) {
  let text = "";
  for (let i = 0; i < raw.length; i += 8192) text += String.fromCharCode(...raw.subarray(i, i + 8192));
  return btoa(text);
}

function fromInk(ink) {
  const raw = new Uint8Array(4 * ink.length).fill(255);
  ink.forEach((v, i) => (raw[4 * i + 3] = Math.round(255 * v)));
  return encode(raw);
}

async function fromFile(file, size) {
  const image = await createImageBitmap(file);
  const side = Math.min(image.width, image.height);
  const canvas = new OffscreenCanvas(size, size), context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(image, (image.width - side) / 2, (image.height - side) / 2, side, side, 0, 0, size, size);
  return encode(context.getImageData(0, 0, size, size).data);
}
