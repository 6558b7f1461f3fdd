import { empty, put } from "./dom.js";
export async function show(root) { put(root, empty("Not there yet")); return { title: "look" }; }
