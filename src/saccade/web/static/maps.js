// Small maps on canvases: feature maps in tiles, attention over the image, Gaussian heads as contours.

import { h, s } from "./dom.js";
import { ramp } from "./colours.js";

const decoded = new WeakMap(); // a layer's bytes serve all its heads

function bytes(layer) {
  if (!decoded.has(layer)) decoded.set(layer, Uint8Array.from(atob(layer.data), (c) => c.charCodeAt(0)));
  return decoded.get(layer);
}

export function canvas(width, height, label) {
  return h("canvas.pixels", { width, height, role: "img", "aria-label": label });
}

// Channels (c, h, w) side by side, in one canvas with a pixel of space between.
export function features(f, columns) {
  const [c, rows, cols] = f.shape, data = bytes(f);
  const across = Math.min(c, columns), down = Math.ceil(c / across);
  const gap = Math.max(1, Math.round(cols / 14));
  const width = across * (cols + gap) - gap, height = down * (rows + gap) - gap;
  const board = canvas(width, height, `${c} feature maps of ${f.name}, from ${f.low.toFixed(2)} to ${f.high.toFixed(2)}`);
  const context = board.getContext("2d"), image = context.createImageData(width, height), out = image.data;
  const signed = f.low < 0, most = Math.max(-f.low, f.high) || 1, colours = ramp(signed);
  for (let k = 0; k < c; k++) {
    const left = (k % across) * (cols + gap), top = Math.floor(k / across) * (rows + gap);
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < cols; j++) {
        const raw = data[(k * rows + i) * cols + j];
        const v = signed ? 127.5 + (127.5 * (f.low + (raw / 255) * (f.high - f.low))) / most : raw;
        const [r, g, b] = colours[Math.max(0, Math.min(255, Math.round(v)))], at = 4 * ((top + i) * width + left + j);
        out[at] = r; out[at + 1] = g; out[at + 2] = b; out[at + 3] = 255;
      }
    }
  }
  context.putImageData(image, 0, 0);
  return board;
}

// One head's map over the image: yellow where it looks, the image shining through elsewhere.
export function looking(layer, head, picture, size) {
  const [, rows, cols] = layer.shape, data = bytes(layer);
  const board = canvas(size, size, `${layer.name}, head ${head + 1}: largest weight ${layer.top[head].toPrecision(2)}, looks at about ${layer.effective[head].toFixed(0)} places`);
  const context = board.getContext("2d"), image = context.createImageData(size, size), out = image.data, colours = ramp();
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const i = Math.floor((y - layer.margin[0]) / layer.stride[0]), j = Math.floor((x - layer.margin[1]) / layer.stride[1]);
      const inside = i >= 0 && j >= 0 && i < rows && j < cols;
      const at = 4 * (y * size + x);
      const grey = picture ? (0.3 * picture[at] + 0.59 * picture[at + 1] + 0.11 * picture[at + 2]) / 255 : 0.5;
      // The square root, so that a peaked head still shows where else it looks.
      const v = inside ? Math.sqrt(data[(head * rows + i) * cols + j] / 255) : 0, k = 0.25 + 0.75 * v, dim = 255 * (inside ? 0.62 : 0.4) * grey;
      const [r, g, b] = colours[Math.round(255 * v)];
      out[at] = k * r + (1 - k) * dim; out[at + 1] = k * g + (1 - k) * dim; out[at + 2] = k * b + (1 - k) * dim; out[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return board;
}

// Ellipses at one and two standard deviations around each head's shift, from a query at the middle.
export function contours(layer, size, query) {
  const at = query || { x: size / 2, y: size / 2 };
  const svg = s("svg.contours", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `${layer.centre.length} heads of ${layer.layer}: where they look from the query` });
  svg.append(s("line.cross", { x1: at.x, x2: at.x, y1: 0, y2: size }), s("line.cross", { x1: 0, x2: size, y1: at.y, y2: at.y }));
  layer.centre.forEach(([down, right], i) => {
    const [[a, b], [, d]] = layer.precision[i];
    const mean = (a + d) / 2, off = Math.hypot((a - d) / 2, b);
    const wide = 1 / Math.sqrt(Math.max(1e-4, mean - off)), narrow = 1 / Math.sqrt(Math.max(1e-4, mean + off));
    const angle = (Math.atan2(2 * b, a - d) / 2) * (180 / Math.PI); // of the narrow axis, from "down" towards "right"
    const cx = at.x + right * layer.patch, cy = at.y + down * layer.patch, hue = Math.round((360 * i) / layer.centre.length);
    for (const k of [1, 2]) {
      svg.append(s("ellipse", { cx, cy, rx: Math.min(4 * size, k * wide * layer.patch), ry: Math.min(4 * size, k * narrow * layer.patch), transform: `rotate(${-angle} ${cx} ${cy})`, fill: "none", stroke: `hsl(${hue} 70% 50%)`, "stroke-width": size / 120, opacity: k === 1 ? 0.95 : 0.4 }));
    }
    svg.append(s("circle", { cx, cy, r: size / 55, fill: `hsl(${hue} 70% 50%)` }));
  });
  svg.append(s("rect.query", { x: at.x - layer.patch / 2, y: at.y - layer.patch / 2, width: layer.patch, height: layer.patch }));
  return svg;
}
