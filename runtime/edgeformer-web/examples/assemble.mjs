/**
 * Puts the demo page or the example extension together, with the built package and a bundle, as they are served or loaded.
 *
 * Usage: node examples/assemble.mjs demo|extension FOLDER [BUNDLE [ONNXRUNTIME]]
 *
 * ONNXRUNTIME is the folder of the installed package `onnxruntime-web`: the demo needs it for bundles without a
 * plan.
 */
import { createHash } from "node:crypto";
import { cpSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const PACKAGE = join(ROOT, "runtime", "edgeformer-web");
const WHAT = { demo: join(ROOT, "docs", "demo"), extension: join(PACKAGE, "examples", "extension") };
const BUNDLE = join(ROOT, "tests", "runtime", "bundles", "int8");
const RUNTIME = ["ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"];

/** Paths of the files in a folder, from there. */
function filesOf(folder) {
  const paths = readdirSync(folder, { recursive: true }).map((path) => path.replaceAll("\\", "/"));
  return paths.filter((path) => statSync(join(folder, path)).isFile()).sort();
}

/** Writes what the service worker keeps, and a version that changes with it. */
function writeFileList(folder) {
  const files = filesOf(folder).filter((path) => !/^model\/|\.d\.ts$|^(files|service-worker)\.js$/.test(path));
  const hash = createHash("sha256");
  for (const path of files) hash.update(`${path}\n`).update(readFileSync(join(folder, path)));
  const kept = {
    version: hash.digest("hex").slice(0, 16),
    files: ["./", ...files.filter((path) => !path.startsWith("onnxruntime/"))],
    runtime: files.filter((path) => path.startsWith("onnxruntime/")),
  };
  writeFileSync(join(folder, "files.js"), `Object.assign(self, ${JSON.stringify(kept, null, 1)});\n`);
}

const [what, folder, bundle = BUNDLE, onnxruntime] = process.argv.slice(2);
if (!Object.hasOwn(WHAT, what) || !folder) {
  console.error("Usage: node examples/assemble.mjs demo|extension FOLDER [BUNDLE [ONNXRUNTIME]]");
  process.exit(2);
}
cpSync(WHAT[what], folder, { recursive: true });
for (const built of ["dist", "wasm"]) cpSync(join(PACKAGE, built), join(folder, "edgeformer", built), { recursive: true });
for (const name of onnxruntime ? RUNTIME : [])
  cpSync(join(onnxruntime, "dist", name), join(folder, "onnxruntime", name));
cpSync(bundle, join(folder, "model"), { recursive: true });
if (what === "demo") writeFileList(folder);
else cpSync(join(WHAT.demo, "this-page.js"), join(folder, "this-page.js"));
