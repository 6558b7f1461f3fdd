// The Look page of an export: answers from a grid that was computed when it was written.

import { get } from "./data.js";

let index = null;

export async function open() {
  try {
    index = index || (await get("look"));
  } catch {
    index = null;
  }
  return index;
}

const sameScene = (a, b) => JSON.stringify(a || null) === JSON.stringify(b || null);

// A model, with those backgrounds that the export has for some image.
export async function about(run) {
  const stock = index.stocks[run], keptScenes = Object.values(index.scenes).flat().filter(Boolean);
  return {
    ...stock,
    scenes: stock.scenes.filter((x) => keptScenes.some((k) => k.split === x.split && k.index === x.index)),
    layers: stock.layers.filter((l) => stock.chosen.includes(l.name)),
  };
}

// The nearest stored place, turn and size.
function nearest(move) {
  const far = (m) => ((m.dx - move.dx) / 4) ** 2 + ((m.dy - move.dy) / 4) ** 2 + ((m.turn - move.turn) / 20) ** 2 + ((Math.log(m.scale) - Math.log(move.scale)) / 0.25) ** 2;
  return index.moves.reduce((best, m, i) => (far(m) < far(index.moves[best]) ? i : best), 0);
}

export async function see(request) {
  const { picture, models, query } = request;
  const image = picture.index, scenes = index.scenes[image];
  const scene = Math.max(0, scenes.findIndex((s) => sameScene(s, picture.scene)));
  const at = nearest(picture.move), move = index.moves[at];
  const still = !move.dx && !move.dy && !move.turn && move.scale === 1;
  const [pictures, ...stored] = await Promise.all([get(`look/pictures/${image}`), ...models.map((m) => get(`look/${m.run}/${image}`))]);
  return {
    png: pictures.pngs[scene][at], size: pictures.size, label: pictures.label, milliseconds: 0, snapped: move, scene: scenes[scene],
    answers: stored.map((answers) => {
      const one = answers[scene].moves[at];
      if (!query || !still) return one;
      const far = (q) => (q.x - query.x) ** 2 + (q.y - query.y) ** 2;
      const near = answers[scene].queries.reduce((best, q) => (far(q) < far(best) ? q : best));
      return { ...one, attention: near.attention };
    }),
  };
}
