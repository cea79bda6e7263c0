import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { startKernels } from "../src/engine/wasm.js";
import { EdgeformerError, openTranslator } from "../src/index.js";
import { INT8, SENTENCES } from "./support.js";

const plain = new URL("../../wasm/edgeformer_kernels.wasm", import.meta.url);
const relaxed = new URL("../../wasm/edgeformer_kernels_relaxed.wasm", import.meta.url);

function levels(kernels: Awaited<ReturnType<typeof startKernels>>): string {
  const text = new Uint8Array(kernels.memory.buffer, kernels.edgeformer_levels(), 64);
  return new TextDecoder().decode(text.subarray(0, text.indexOf(0)));
}

test("relaxed SIMD is used where its products are exact, and nowhere else", async () => {
  const asked = await startKernels(relaxed).then(levels, () => "");
  assert.equal(levels(await startKernels()), asked || "simd128");
});

test("every module computes the same bits", async () => {
  const results = async (wasm?: URL) => {
    const translator = await openTranslator(INT8, { wasm });
    return translator.translate(SENTENCES, { beamSize: 4, nBest: 4, returnTokenScores: true, returnAttention: true });
  };
  assert.deepEqual(await results(), await results(plain));
});

test("a module is an address, bytes or compiled; another file or version is refused", async () => {
  const bytes = await readFile(plain);
  for (const source of [plain, plain.href, bytes, await WebAssembly.compile(bytes)])
    assert.equal(levels(await startKernels(source)), "simd128");
  const [name, other] = ["edgeformer_version", "edgeformer_of_late"].map((each) => Buffer.from(each));
  const older = Buffer.from(bytes);
  older.set(other!, older.indexOf(name!));
  for (const source of [new URL("none.wasm", plain), bytes.subarray(0, 100), older])
    await assert.rejects(startKernels(source), (error) => error instanceof EdgeformerError && error.kind === "engine");
});
