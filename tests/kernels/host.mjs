// Translates with the kernels' library in WebAssembly: node host.mjs LIBRARY WEIGHTS CASE, where CASE is a JSON file with
// the plan's numbers, token ids of sentences, what is searched for, and how often to repeat it for a measurement.
import { readFileSync } from "node:fs";

const [library, weights, path] = process.argv.slice(2);
const { plan, sources, begin, end, suppressed, most, beams, repeat } = JSON.parse(readFileSync(path, "utf8"));
const { exports: kernels } = await WebAssembly.instantiate(await WebAssembly.compile(readFileSync(library)), {});
kernels._initialize();

// Copies an array into the module's memory, at a multiple of 64 bytes.
function put(array) {
  const place = (kernels.malloc(array.byteLength + 64) + 63) & ~63;
  new Uint8Array(kernels.memory.buffer).set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), place);
  return place;
}
const whole = (numbers) => put(BigInt64Array.from(numbers, BigInt));

const content = readFileSync(weights);
const problem = put(new Uint8Array(256));
const model = kernels.edgeformer_open(put(content), BigInt(content.byteLength), put(Float64Array.from(plan)),
  BigInt(plan.length), 0, problem, 256n);
if (!model) throw new Error(Buffer.from(new Uint8Array(kernels.memory.buffer, problem, 256)).toString().split("\0")[0]);

const room = most, hypotheses = beams;
const token = whole(new Array(hypotheses * room).fill(0)), logs = put(new Float64Array(hypotheses * room));
const count = whole(new Array(hypotheses).fill(0)), score = put(new Float64Array(hypotheses)), finished = put(new Uint8Array(hypotheses));
const results = put(new Uint8Array(28));
new DataView(kernels.memory.buffer).setBigInt64(results, BigInt(room), true);
[token, logs, count, score, finished].forEach((place, i) => new DataView(kernels.memory.buffer).setUint32(results + 8 + 4 * i, place, true));
const options = put(new Uint8Array(136));
const unwanted = whole(suppressed);
{
  const view = new DataView(kernels.memory.buffer);
  [beams, hypotheses, beams, 0, 0, 1, 0, beams > 1 ? 1 : 0].forEach((value, i) => view.setBigInt64(options + 8 * i, BigInt(value), true));
  view.setFloat64(options + 64, 1, true);
  view.setBigInt64(options + 80, BigInt(end), true);
  view.setUint32(options + 88, unwanted, true);
  view.setBigInt64(options + 96, BigInt(suppressed.length), true);
}
const initial = put(new Float64Array(1)), start = whole([begin]), limit = whole([most]);

function translated(source) {
  const ids = whole(source), length = whole([source.length]);
  const batch = kernels.edgeformer_start(model, ids, length, 1n);
  if (kernels.edgeformer_search(batch, start, 1n, limit, initial, options, 0, 0, results) !== 1) throw new Error("search failed");
  kernels.edgeformer_end(batch);
  const size = Number(new BigInt64Array(kernels.memory.buffer, count, 1)[0]);
  return [...new BigInt64Array(kernels.memory.buffer, token, size)].map(Number);
}

const found = sources.map(translated);
const begun = performance.now();
for (let round = 0; round < repeat; round++) sources.forEach(translated);
const ms = repeat ? (performance.now() - begun) / repeat / sources.length : null;
console.log(JSON.stringify({ found, ms }));
