// Runs a WebAssembly program with the files of this machine: node wasi.mjs PROGRAM [ARGUMENT ...]
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";
const [file, ...args] = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args: ["driver", ...args], preopens: { "/": "/" }, env: {} });
const { instance } = await WebAssembly.instantiate(readFileSync(file), wasi.getImportObject());
process.exitCode = wasi.start(instance);
