// Elements from values. Text is always set as text, so nothing that a lab contains becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else if (name === "data") for (const [k, v] of Object.entries(value)) element.dataset[k] = v;
    else if (name in element && typeof value !== "string" && !(element instanceof SVGElement)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child);
  }
  return element;
}

export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name || "div");
  if (classes.length) element.className = classes.join(" ");
  return fill(element, props, children);
}

export function s(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElementNS(SVG, name);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  return fill(element, props, children);
}

export function put(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

// The same page with newer values: what was opened stays open, and the keyboard stays where it was.
export function renew(element, ...children) {
  const nameOf = (e) => `${e.tagName} ${e.id || e.getAttribute("aria-label") || e.getAttribute("href") || e.textContent.replace(/\d/g, "").slice(0, 60)}`;
  const summaries = () => [...element.querySelectorAll("details > summary")];
  const before = new Map(summaries().map((e) => [nameOf(e), e.parentElement.open]));
  const focused = element.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  put(element, ...children);
  for (const e of summaries()) if (before.has(nameOf(e))) e.parentElement.open = before.get(nameOf(e));
  if (focused) [...element.querySelectorAll("a, button, summary, input, select, [tabindex]")].find((e) => nameOf(e) === focused)?.focus({ preventScroll: true });
  return element;
}

let counter = 0;
export const unique = (name) => `${name}-${++counter}`;

// Text for screen readers; the same sentence given twice is read twice.
export function announce(text) {
  const line = document.getElementById("say");
  line.textContent = "";
  requestAnimationFrame(() => (line.textContent = text));
}

export function badge(says, look, sign) {
  return h(`span.badge.${look || "other"}`, {}, h("i", { "aria-hidden": "true" }, sign || "·"), says);
}

export function copyable(text, label = "Copy") {
  const button = h("button.copy", {
    type: "button",
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(code);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        button.textContent = "Selected";
      }
      announce(button.textContent);
      setTimeout(() => (button.textContent = label), 1600);
    },
  }, label);
  // A line breaks between words: not after the hyphens of a flag, nor before its value.
  const words = text.match(/--\S+ [^\s-]\S*|\S+|\s+/g).map((w) => (/\S/.test(w) ? h("span.word", {}, w) : w));
  const code = h("code", {}, words);
  return h("div.command", {}, h("pre", { tabindex: "0" }, code), button);
}

export function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 5000);
}

export const empty = (title, ...more) => h("div.empty", {}, h("h2", {}, title), more);

// A small menu that opens below a button; Escape and a click elsewhere close it.
export function menu(label, items, props = {}) {
  const list = h("div.menu-list", { hidden: true, id: unique("menu") });
  const button = h("button.quiet", {
    type: "button", "aria-expanded": "false", "aria-controls": list.id, ...props,
    onclick: () => toggle(list.hidden),
  }, label, h("span.caret", { "aria-hidden": "true" }, "▾"));
  const root = h("div.menu", {
    onkeydown: (e) => {
      if (e.key === "Escape" && !list.hidden) { toggle(false); button.focus(); e.stopPropagation(); }
    },
  }, button, list);
  const away = (e) => { if (!root.contains(e.target)) toggle(false); };
  function toggle(open) {
    list.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    if (open) {
      put(list, items(() => toggle(false)));
      document.addEventListener("pointerdown", away);
      document.addEventListener("focusin", away);
    } else {
      document.removeEventListener("pointerdown", away);
      document.removeEventListener("focusin", away);
    }
  }
  return root;
}
