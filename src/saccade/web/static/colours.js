// Colour is the architecture family and shade its size, as in the reports; heat maps in cividis and PuOr.

let families = {};
export const setFamilies = (byName) => (families = byName);

const mix = (code, towards, share) =>
  [1, 3, 5].map((i) => Math.round((1 - share) * parseInt(code.slice(i, i + 2), 16) + share * towards));

export function colour(family, shade = 0.5) {
  const code = (families[family] || families.other || { colour: "#6E7781" }).colour;
  const [towards, share] = shade < 0.5 ? [255, 0.9 * (0.5 - shade)] : [0, 0.7 * (shade - 0.5)];
  return `rgb(${mix(code, towards, share).join(",")})`;
}

export const marker = (family) => (families[family] || {}).marker || "pentagon";

const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const PUOR = ["#7f3b08", "#b35806", "#e08214", "#fdb863", "#fee0b6", "#f7f7f7", "#d8daeb", "#b2abd2", "#8073ac", "#542788", "#2d004b"];
const table = new Map();

function between(stops, t) {
  const at = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2), f = at - i;
  return [1, 3, 5].map((k) => Math.round((1 - f) * parseInt(stops[i].slice(k, k + 2), 16) + f * parseInt(stops[i + 1].slice(k, k + 2), 16)));
}

// 256 colours as [r, g, b], for canvases.
export function ramp(diverging = false) {
  const name = diverging ? "puor" : "cividis";
  if (!table.has(name)) table.set(name, Array.from({ length: 256 }, (_, i) => between(diverging ? PUOR : CIVIDIS, i / 255)));
  return table.get(name);
}

export const heat = (t, diverging = false) => `rgb(${between(diverging ? PUOR : CIVIDIS, t).join(",")})`;
export const isBright = (t, diverging = false) => {
  const [r, g, b] = between(diverging ? PUOR : CIVIDIS, t);
  return (0.3 * r + 0.59 * g + 0.11 * b) / 255 > 0.5;
};

// For lines that are no family: groups of runs. Okabe and Ito's colours in an order of their own.
export const CYCLE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6E7781"];
