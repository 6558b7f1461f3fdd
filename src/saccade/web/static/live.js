// Has the lab changed? Asked every second or two while somebody watches; says when the server is gone, and when it is back.

import { STATIC, get, onConnection } from "./data.js";

const listeners = new Set();
let last = null;
let timer = 0;
let wait = 1500;

export const onChange = (tell) => (listeners.add(tell), () => listeners.delete(tell));
export const pulse = () => last;

async function beat() {
  clearTimeout(timer);
  if (document.visibilityState === "visible") {
    try {
      const now = await get("pulse");
      const changed = !last || now.version !== last.version || now.born !== last.born || now.complete !== last.complete;
      const restarted = last && now.born !== last.born;
      last = now;
      wait = 1500;
      if (changed) for (const tell of [...listeners]) tell(now, restarted);
    } catch {
      wait = Math.min(6000, wait * 1.5);
    }
  }
  timer = setTimeout(beat, wait);
}

export function start() {
  if (STATIC) return;
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && beat());
  const banner = document.getElementById("lost");
  onConnection((lost) => {
    banner.hidden = !lost;
    banner.textContent = lost
      ? "The server does not answer any more. What you see is from before; this page asks again every few seconds and goes on by itself when saccade serve runs again."
      : "";
    document.documentElement.classList.toggle("is-lost", lost);
    if (!lost) wait = 1500;
  });
  beat();
}
