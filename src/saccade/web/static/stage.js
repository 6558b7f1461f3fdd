// The image in the middle of everything: drag, turn and scale what is on it, point at a pixel, draw, drop a file.

import { h, put, s, announce } from "./dom.js";

export const STILL = { dx: 0, dy: 0, turn: 0, scale: 1 };
const clamp = (v, low, high) => Math.min(high, Math.max(low, v));

// tell: {moved(move), pointed(query | null, pinned), drawn(rgba), dropped(file)}
export function stage(tell) {
  let size = 32, move = { ...STILL }, query = null, pinned = false, mode = "move", ink = null, still = false;
  const image = h("img.pixels.stage-image", { alt: "", draggable: false, hidden: true });
  const overlay = s("svg.overlay", { "aria-hidden": "true" });
  const root = h("div.stage-frame", {
    tabindex: "0", role: "application", "aria-roledescription": "image to move",
    "aria-label": "The image. Arrow keys move the object, brackets turn it, plus and minus scale it, 0 puts it back. With Alt, arrow keys choose the pixel whose attention is shown.",
  }, image, overlay);

  const place = (e) => {
    const box = root.getBoundingClientRect();
    return { x: ((e.clientX - box.left) / box.width) * size, y: ((e.clientY - box.top) / box.height) * size };
  };
  const centre = () => ({ x: size / 2 + move.dx, y: size / 2 + move.dy });
  const radius = () => 0.4 * size * move.scale;

  function paint() {
    overlay.setAttribute("viewBox", `0 0 ${size} ${size}`);
    const c = centre(), r = clamp(radius(), 3, size), a = (-move.turn * Math.PI) / 180;
    const top = { x: c.x + r * Math.sin(a), y: c.y - r * Math.cos(a) };
    const corner = { x: c.x + r * Math.sin(a + (3 * Math.PI) / 4), y: c.y - r * Math.cos(a + (3 * Math.PI) / 4) };
    put(overlay,
      mode === "move" && !still ? [
        s("circle.reach", { cx: c.x, cy: c.y, r }),
        s("circle.handle.turn", { cx: clamp(top.x, 1, size - 1), cy: clamp(top.y, 1, size - 1), r: size / 24, data: { act: "turn" } }),
        s("rect.handle.size", { x: clamp(corner.x, 1, size - 1) - size / 28, y: clamp(corner.y, 1, size - 1) - size / 28, width: size / 14, height: size / 14, data: { act: "scale" } }),
      ] : null,
      query ? s(`rect.query${pinned ? ".pinned" : ""}`, { x: Math.floor(query.x), y: Math.floor(query.y), width: 1, height: 1 }) : null);
  }

  // -- pointer

  let drag = null;
  root.addEventListener("pointerdown", (e) => {
    if (e.button) return;
    const at = place(e);
    root.setPointerCapture(e.pointerId);
    if (mode === "draw") {
      drag = { act: "draw", last: at };
      brush(at, at);
      return;
    }
    drag = { act: e.target.dataset?.act || "move", from: at, move: { ...move }, far: false };
    e.preventDefault();
    root.focus({ preventScroll: true });
  });
  root.addEventListener("pointermove", (e) => {
    const at = place(e);
    if (!drag) {
      if (!pinned && e.pointerType !== "touch") point(at, false);
      return;
    }
    if (drag.act === "draw") {
      brush(drag.last, at);
      drag.last = at;
      return;
    }
    if (still) return;
    if (Math.hypot(at.x - drag.from.x, at.y - drag.from.y) > size / 60) drag.far = true;
    if (!drag.far) return;
    const c = { x: size / 2 + drag.move.dx, y: size / 2 + drag.move.dy };
    const angle = (p) => Math.atan2(p.x - c.x, c.y - p.y);
    if (drag.act === "move") change({ dx: drag.move.dx + at.x - drag.from.x, dy: drag.move.dy + at.y - drag.from.y });
    else if (drag.act === "turn") change({ turn: drag.move.turn - ((angle(at) - angle(drag.from)) * 180) / Math.PI });
    else change({ scale: (drag.move.scale * Math.hypot(at.x - c.x, at.y - c.y)) / Math.max(0.5, Math.hypot(drag.from.x - c.x, drag.from.y - c.y)) });
  });
  const end = (e) => {
    if (drag && drag.act !== "draw" && !drag.far) {
      const at = place(e);
      const same = pinned && query && Math.floor(at.x) === Math.floor(query.x) && Math.floor(at.y) === Math.floor(query.y);
      point(at, !same);
    }
    drag = null;
  };
  root.addEventListener("pointerup", end);
  root.addEventListener("pointercancel", () => (drag = null));
  root.addEventListener("pointerleave", () => {
    if (!drag && !pinned) { query = null; paint(); tell.pointed(null, false); }
  });
  root.addEventListener("wheel", (e) => {
    if (mode !== "move" || still) return;
    e.preventDefault();
    change(e.shiftKey ? { turn: move.turn - Math.sign(e.deltaY || e.deltaX) * 5 } : { scale: move.scale * (e.deltaY < 0 ? 1.06 : 1 / 1.06) });
  }, { passive: false });

  // -- keyboard

  root.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
    if (step && e.altKey) {
      const from = query || { x: size / 2, y: size / 2 };
      point({ x: clamp(from.x + step[0], 0, size - 0.01), y: clamp(from.y + step[1], 0, size - 0.01) }, true);
      announce(`pixel ${Math.floor(query.x)} right, ${Math.floor(query.y)} down`);
    } else if (e.key === "Escape" && query) {
      pinned = false; query = null; paint(); tell.pointed(null, false);
    } else if (still) return;
    else if (step) change({ dx: move.dx + step[0] * (e.shiftKey ? 4 : 1), dy: move.dy + step[1] * (e.shiftKey ? 4 : 1) });
    else if (e.key === "[" || e.key === "]") change({ turn: move.turn + (e.key === "[" ? 5 : -5) });
    else if (e.key === "+" || e.key === "=" || e.key === "-") change({ scale: move.scale * (e.key === "-" ? 1 / 1.1 : 1.1) });
    else if (e.key === "0") change({ ...STILL });
    else return;
    e.preventDefault();
  });

  // -- files

  root.addEventListener("dragover", (e) => { e.preventDefault(); root.classList.add("over"); });
  root.addEventListener("dragleave", () => root.classList.remove("over"));
  root.addEventListener("drop", (e) => {
    e.preventDefault();
    root.classList.remove("over");
    const file = [...e.dataTransfer.files].find((f) => f.type.startsWith("image/"));
    if (file) tell.dropped(file);
  });

  function change(part) {
    move = { ...move, ...part };
    move.dx = Math.round(clamp(move.dx, -size, size) * 4) / 4;
    move.dy = Math.round(clamp(move.dy, -size, size) * 4) / 4;
    move.turn = Math.round(((((move.turn + 180) % 360) + 360) % 360) - 180);
    move.scale = Math.round(clamp(move.scale, 0.2, 3) * 100) / 100;
    paint();
    tell.moved({ ...move });
  }
  function point(at, isPinned) {
    const next = { x: Math.floor(clamp(at.x, 0, size - 0.01)) + 0.5, y: Math.floor(clamp(at.y, 0, size - 0.01)) + 0.5 };
    const same = query && next.x === query.x && next.y === query.y && pinned === isPinned;
    query = next;
    pinned = isPinned;
    if (same) return;
    paint();
    tell.pointed(query, pinned);
  }

  // A round brush of white ink, kept as opacity in [0, 1].
  function brush(from, to) {
    ink = ink || new Float32Array(size * size);
    const steps = Math.max(1, Math.ceil(Math.hypot(to.x - from.x, to.y - from.y) * 2));
    for (let k = 0; k <= steps; k++) {
      const cx = from.x + ((to.x - from.x) * k) / steps, cy = from.y + ((to.y - from.y) * k) / steps, r = size / 22;
      for (let y = Math.floor(cy - r - 1); y <= cy + r + 1; y++) for (let x = Math.floor(cx - r - 1); x <= cx + r + 1; x++) {
        if (x < 0 || y < 0 || x >= size || y >= size) continue;
        const v = clamp(r + 0.5 - Math.hypot(x + 0.5 - cx, y + 0.5 - cy), 0, 1);
        ink[y * size + x] = Math.max(ink[y * size + x], v);
      }
    }
    tell.drawn(ink);
  }

  return {
    root, change,
    show(png) { image.src = png; image.alt = "The image that both models see"; image.hidden = false; },
    set(next) {
      if (next.size) { if (next.size !== size) ink = null; size = next.size; }
      if (next.move) move = { ...next.move };
      if ("query" in next) { query = next.query; pinned = Boolean(query); }
      if (next.mode) mode = next.mode;
      if ("still" in next) still = next.still;
      if (next.ink !== undefined) ink = next.ink;
      root.classList.toggle("drawing", mode === "draw");
      paint();
    },
    state: () => ({ size, move: { ...move }, query, pinned, mode, ink }),
  };
}
