import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  EdgeformerError,
  openPortTranslator,
  openTranslator,
  type Port,
  serveTranslator,
  type Translator,
} from "edgeformer";
import { INT8, SENTENCES } from "./support.js";

const { port1, port2 } = new MessageChannel();
let direct: Translator;
let remote: Translator;
before(async () => {
  serveTranslator(port2 as unknown as Port);
  direct = await openTranslator(INT8);
  remote = await openPortTranslator(port1 as unknown as Port, INT8);
});
after(() => port1.close());

test("a worker translates as a translator in the same thread", async () => {
  for (const name of ["manifest", "engine", "hasAttention"] as const) assert.deepEqual(remote[name], direct[name]);
  const options = { beamSize: 2, nBest: 2 };
  assert.deepEqual(await remote.translate(SENTENCES, options), await direct.translate(SENTENCES, options));
  assert.deepEqual(await remote.translate(SENTENCES[0]!, options), await direct.translate(SENTENCES[0]!, options));
  assert.deepEqual((await remote.verify()).problems, []);
});

test("tokens come one by one", async () => {
  const expected = [];
  for await (const step of direct.translateTokens(SENTENCES[0]!)) expected.push(step);
  const found = [];
  for await (const step of remote.translateTokens(SENTENCES[0]!)) found.push(step);
  assert.deepEqual(found, expected);
  for await (const step of remote.translateTokens(SENTENCES[0]!)) if (step.text.length > 3) break;
});

test("blocks are translated as in the same thread", async () => {
  const block = { text: "The dog {x}. A sea!", tags: [], items: [], isMarkup: false };
  const textOptions = { capitals: "keep" as const };
  const expected = await direct.translateBlocks([block], { beamSize: 2 }, textOptions);
  assert.deepEqual(await remote.translateBlocks([block], { beamSize: 2 }, textOptions), expected);
  assert.equal(expected[0]!.sentences.length, 2);
  assert.match(expected[0]!.pieces.join(""), /\{x\}/);
});

test("errors keep their kind", async () => {
  await assert.rejects(remote.translate("A cat!", { beamSize: 0 }), (error) => {
    assert.ok(error instanceof EdgeformerError && error.kind === "option");
    return true;
  });
});

test("a signal gives up a call, and others go on", async () => {
  const controller = new AbortController();
  const found = remote.translate(Array(100).fill(SENTENCES).flat(), { signal: controller.signal, beamSize: 1 });
  setTimeout(() => controller.abort(new Error("enough")), 20);
  await assert.rejects(found, /enough/);
  assert.equal((await remote.translate("A cat!")).text, (await direct.translate("A cat!")).text);
});

test("a closed translator says so", async () => {
  const waiting = remote.translate(SENTENCES);
  remote.close();
  await assert.rejects(waiting, /The translator is closed/);
  await assert.rejects(remote.translate("A cat!"), /The translator is closed/);
});
