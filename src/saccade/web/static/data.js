// Where answers come from: the server beside this page, or the files of an export. No other address is used.

const root = document.documentElement;
export const STATIC = root.hasAttribute("data-export");
const listeners = new Set();
let lost = false;

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const onConnection = (tell) => (listeners.add(tell), () => listeners.delete(tell));

function connection(isLost) {
  if (isLost === lost) return;
  lost = isLost;
  for (const tell of listeners) tell(lost);
}

export const isLost = () => lost;

async function ask(path, init) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...init });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    connection(true);
    throw new Refused("The server does not answer.", 0);
  }
  connection(false);
  let body;
  try {
    body = await response.json();
  } catch {
    throw new Refused("The answer could not be read.", response.status);
  }
  if (!response.ok) throw new Refused(body.error || `The server refused (${response.status}).`, response.status);
  return body;
}

export function get(path, query) {
  if (STATIC) return file(path);
  const words = query && Object.keys(query).length ? "?" + new URLSearchParams(query) : "";
  return ask(`api/${path.split("/").map(encodeURIComponent).join("/")}${words}`);
}

export function post(path, body, signal) {
  return ask(`api/${path}`, {
    method: "POST", signal, headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
}

// Files of an export are scripts that hand over one value: a page opened by double click may load scripts, but no data.
const waiting = new Map();
const loaded = new Map();
if (STATIC) {
  window.saccadeFile = (name, value) => {
    loaded.set(name, value);
    waiting.get(name)?.(value);
  };
}

export const fileName = (path) => path.replace(/[^A-Za-z0-9._-]/g, "_");

function file(path) {
  const name = fileName(path);
  if (loaded.has(name)) return Promise.resolve(loaded.get(name));
  return new Promise((resolve, reject) => {
    waiting.set(name, resolve);
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    script.onerror = () => reject(new Refused("This is not part of the export.", 404));
    document.head.append(script);
  });
}

// The address of a file to download.
export const href = (path) => (STATIC ? `data/${fileName(path)}` : `api/${path}`);
