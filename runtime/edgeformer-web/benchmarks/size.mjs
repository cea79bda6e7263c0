/**
 * Prints what a page downloads to translate, in bytes of gzip: the code that `dist/index.js` imports, the code for whole
 * texts, which is loaded with the first one, and the engines, of which a browser downloads the first one that it can run.
 *
 * Usage: node benchmarks/size.mjs [PACKAGE]
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const [folder = fileURLToPath(new URL("..", import.meta.url))] = process.argv.slice(2);
const compressed = (...path) => gzipSync(readFileSync(join(folder, ...path)), { level: 9 }).length;

/** The files that a file imports as soon as it is loaded, itself included. */
function imported(name, found = new Set()) {
  if (found.has(name)) return found;
  found.add(name);
  const code = readFileSync(join(folder, "dist", name), "utf8");
  for (const [, other] of code.matchAll(/(?:from|import)\s*"\.\/([^"]+)"/g)) imported(other, found);
  return found;
}

const first = imported("index.js");
const text = readdirSync(join(folder, "dist")).filter((name) => /^text_translator-.*\.js$/.test(name));
const later = [...imported(text[0])].filter((name) => !first.has(name));
const sum = (names) => [...names].reduce((total, name) => total + compressed("dist", name), 0);
const engines = ["edgeformer_kernels_relaxed.wasm", "edgeformer_kernels.wasm"].map((name) => compressed("wasm", name));
console.log(JSON.stringify({ code: sum(first), text: sum(later), relaxed: engines[0], plain: engines[1] }));
