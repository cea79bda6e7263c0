import assert from "node:assert/strict";
import { before, test } from "node:test";
import type { Manifest } from "../src/bundle/manifest.js";
import { chosenLanguages, resolvedTokens } from "../src/decoding/languages.js";
import { Shortlist } from "../src/decoding/shortlist.js";
import { LocalTranslator } from "../src/decoding/translator.js";
import type { Engine } from "../src/engine/interface.js";
import { openKernels } from "../src/engine/kernels.js";
import { EdgeformerError, openBundle, openTranslator, type Translator } from "../src/index.js";
import { openTokenizers } from "../src/tokenizer/open.js";
import { INT8, random, SENTENCES } from "./support.js";

let translator: Translator;
before(async () => {
  translator = await openTranslator(INT8);
});

test("the golden examples have the recorded output", async () => {
  const { cases, maxScoreDifference, problems } = await translator.verify();
  assert.deepEqual(problems, []);
  assert.equal(cases, 12);
  assert.ok(maxScoreDifference < 1e-5);
});

test("attention weights add up to one, and leave other translations as they are", async () => {
  const before = await translator.translate(SENTENCES);
  const attentive = await translator.translate(SENTENCES, { returnAttention: true });
  for (const { hypotheses, source } of attentive) {
    const { targetTokens, weights } = hypotheses[0]!.attention!;
    assert.equal(weights.length, targetTokens.length);
    for (const row of weights) {
      assert.equal(row.length, source.ids.length);
      assert.ok(Math.abs(row.reduce((sum, weight) => sum + weight) - 1) < 1e-5);
    }
  }
  assert.deepEqual(await translator.translate(SENTENCES), before);
});

test("translations are aligned with words of the text, whatever special tokens surround it", async () => {
  const bundle = await openBundle(INT8);
  const kernels = await openKernels(bundle, bundle.manifest.plan!);
  const tokenizers = await openTokenizers(bundle.manifest, bundle);
  const text = SENTENCES[0]!;
  const { length } = tokenizers.source.encode(text);
  for (const before of [0, 1, 2])
    for (const after of [0, 1, 2]) {
      // Each token attends to the special tokens most, and then to one token of the text, from the last to the first.
      const attentive: Engine = {
        name: "kernels",
        start: kernels.start.bind(kernels),
        close: () => undefined,
        attention: async (source, fed) =>
          fed.map((_, step) =>
            Float32Array.from(source, (_, i) => {
              const isText = i >= before && i < source.length - after;
              return isText ? 0.01 + 0.1 * Number(i - before === (length - 1 - step + 100 * length) % length) : 0.5;
            }),
          ),
      };
      const manifest = structuredClone(bundle.manifest);
      manifest.text.source_prefix = Array(before).fill("<s>");
      manifest.text.source_suffix = Array(after).fill("</s>");
      const surrounded = Object.assign(Object.create(bundle), { manifest });
      const translator = new LocalTranslator(surrounded, attentive, tokenizers, undefined);
      const { hypotheses, source } = await translator.translate(text, { maxLength: length + 3, returnAttention: true });
      const { alignment, sourceTokens } = hypotheses[0]!.attention!;
      assert.equal(sourceTokens.length, source.ids.length);
      assert.equal(source.ids.length, before + length + after);
      assert.deepEqual(
        alignment,
        hypotheses[0]!.ids.map((_, i) => [before + ((length - 1 - i + 100 * length) % length), i]),
      );
      for (const row of await translator.attention(text, hypotheses[0]!.ids)) assert.equal(row.length, length);
    }
});

test("the search in steps finds what the kernels' own search finds", async () => {
  const bundle = await openBundle(INT8);
  const kernels = await openKernels(bundle, bundle.manifest.plan!);
  const tokenizers = await openTokenizers(bundle.manifest, bundle);
  const { attention, close, start } = kernels;
  const inSteps: Engine = { name: "kernels", start: start.bind(kernels), attention: attention.bind(kernels), close };
  const stepwise = new LocalTranslator(bundle, inSteps, tokenizers, undefined);
  const whole = new LocalTranslator(bundle, kernels, tokenizers, undefined);
  for (const options of [
    { beamSize: 1 },
    { beamSize: 4, nBest: 4 },
    { beamSize: 3, nBest: 3, beamShrinks: true },
    { beamSize: 2, nBest: 4, patience: 2, lengthPenalty: 0.5, lengthIncludesEnd: false },
    { beamSize: 4, earlyStopping: false, maxLength: 12 },
    { beamSize: 4, nBest: 2, targetPrefix: "river" },
  ]) {
    const [expected, found] = [await whole.translate(SENTENCES, options), await stepwise.translate(SENTENCES, options)];
    for (const [i, { hypotheses }] of expected.entries()) {
      assert.deepEqual(
        found[i]!.hypotheses.map(({ ids }) => ids),
        hypotheses.map(({ ids }) => ids),
      );
      for (const [j, { score }] of hypotheses.entries())
        assert.ok(Math.abs(found[i]!.hypotheses[j]!.score! - score!) < 1e-5);
    }
  }
});

test("results do not depend on the other texts of a call", async () => {
  const together = await translator.translate(SENTENCES, { beamSize: 2 });
  for (const [i, text] of SENTENCES.entries())
    assert.deepEqual(await translator.translate(text, { beamSize: 2 }), together[i]);
});

test("a streamed translation is the greedy one", async () => {
  for (const text of SENTENCES.slice(0, 5)) {
    const steps = [];
    for await (const step of translator.translateTokens(text, { returnTokenScores: true })) steps.push(step);
    const whole = await translator.translate(text, { beamSize: 1, returnTokenScores: true });
    const last = steps.at(-1)!;
    assert.deepEqual(
      steps.map(({ isLast }) => isLast),
      steps.map((step) => step === last),
    );
    assert.equal(last.translation!.text, whole.text);
    assert.deepEqual(
      steps.slice(0, -1).map(({ id }) => id),
      whole.hypotheses[0]!.ids,
    );
    for (const [i, logProbability] of whole.hypotheses[0]!.tokenScores!.entries())
      assert.ok(Math.abs(logProbability - steps[i]!.logProbability) < 1e-5);
  }
});

test("options change what is found", async () => {
  const text = SENTENCES[0]!;
  const [plain] = (await translator.translate(text, { beamSize: 1 })).hypotheses;
  const best = async (options: object) =>
    (await translator.translate(text, { beamSize: 1, ...options })).hypotheses[0]!;
  assert.equal((await best({ maxLength: 4 })).ids.length, 4);
  assert.equal((await best({ maxLength: 4 })).finished, false);
  assert.ok((await best({ minLength: plain!.ids.length + 3 })).ids.length >= plain!.ids.length + 3);
  assert.ok(!(await best({ suppressTokens: [plain!.tokens[0]!] })).tokens.includes(plain!.tokens[0]!));
  assert.ok(!(await best({ suppressSequences: ["near", "sea"] })).text.includes("sea"));
  const { ids } = await best({ noRepeatNgramSize: 1 });
  assert.equal(new Set(ids).size, ids.length);
  assert.ok((await best({ targetPrefix: "river" })).text.startsWith("river"));
  assert.equal((await best({ returnScores: false })).score, null);
  const { hypotheses } = await translator.translate(text, { beamSize: 2, nBest: 3, returnAlternatives: true });
  assert.equal(new Set(hypotheses.map((hypothesis) => hypothesis.ids[0])).size, 3);
});

test("blank sentences have empty translations", async () => {
  const found = await translator.translate(["", " \t\u3000", SENTENCES[0]!]);
  assert.deepEqual(
    found.map(({ text }) => text === ""),
    [true, true, false],
  );
  for await (const step of translator.translateTokens(" ")) assert.fail(step.text);
});

test("languages are those of the model, in any spelling", () => {
  const format = {
    ...translator.manifest.text,
    source_prefix: ["{source_language}"],
    target_prefix: ["{target_language}"],
    languages: { en: "<en>", "pt-BR": "<pt>", "zh-Hans": "<zh>", deu_Latn: "<de>" },
  };
  for (const [given, expected] of [
    ["EN", "en"],
    ["en-US", "en"],
    ["pt", "pt-BR"],
    ["zh", "zh-Hans"],
    ["zh-CN", "zh-Hans"],
    ["de", "deu_Latn"],
  ] as const)
    assert.deepEqual(chosenLanguages(format, ["en", "en"], ["", given]), ["en", expected]);
  assert.throws(
    () => chosenLanguages(format, ["en", "en"], ["", "zh-TW"]),
    /must be one of deu_Latn, en, pt-BR, zh-Hans/,
  );
  assert.deepEqual(resolvedTokens(format, ["{target_language}", "</s>"], ["en", "pt-BR"]), ["<pt>", "</s>"]);
  assert.deepEqual(chosenLanguages(translator.manifest.text, ["en", "fr"], ["", ""]), ["en", "fr"]);
  assert.throws(() => chosenLanguages(translator.manifest.text, ["en", "fr"], ["", "de"]), /must be one of fr/);
});

test("lists restrict what sentences may use", () => {
  // Two source and 300 target tokens; two tokens are always usable, and source token 1 has a list of its own.
  const [frequent, list] = [Array.from({ length: 300 }, (_, i) => 299 - i), [7, 3]];
  const numbers = new Uint32Array([2, 300, 2, 2, 0, 2]);
  const data = new Uint8Array(numbers.byteLength + 2 * 302);
  data.set(new Uint8Array(numbers.buffer));
  data.set(new Uint8Array(new Uint16Array([...frequent, ...list]).buffer), numbers.byteLength);
  const special = { ...translator.manifest.special, suppress: [299], forbid: [] };
  const manifest = { ...translator.manifest, source_vocab_size: 2, target_vocab_size: 300, special };
  const { listed, usable } = Shortlist.read(data, manifest).listing([[0], [1, 0]]);
  assert.equal(listed.length, 128);
  const usableBy = (n: number) => [...listed].filter((_, i) => usable[n * listed.length + i]);
  assert.deepEqual([usableBy(0), usableBy(1)], [[298], [3, 7, 298]]);
  assert.throws(() => Shortlist.read(data.slice(2), manifest), /is damaged/);
  data[data.length - 1] = 2; // a token beyond the vocabulary
  assert.throws(() => Shortlist.read(data, manifest), /its lists are wrong/);
});

/** Lists of 6 random tokens for each source token, and 20 for all, the end token among them. */
function randomLists(manifest: Manifest): Shortlist {
  const { source_vocab_size: sources, target_vocab_size: targets, special } = manifest;
  const next = random(1);
  const below = (limit: number) => Math.floor(limit * next());
  const others = Array.from({ length: targets }, (_, i) => i).filter((token) => token !== special.eos);
  for (let i = others.length - 1; i > 0; i--) {
    const j = below(i + 1);
    [others[i], others[j]] = [others[j]!, others[i]!];
  }
  const ends = Array.from({ length: sources }, (_, i) => 6 * (i + 1));
  const numbers = new Uint32Array([sources, targets, 20, 6 * sources, ...ends]);
  const ids = new Uint16Array([
    special.eos,
    ...others,
    ...ends.flatMap(() => others.slice(0, 6).map(() => below(targets))),
  ]);
  const data = new Uint8Array(numbers.byteLength + ids.byteLength);
  data.set(new Uint8Array(numbers.buffer));
  data.set(new Uint8Array(ids.buffer), numbers.byteLength);
  return Shortlist.read(data, manifest);
}

test("with lists, a sentence has tokens of its own, and the same in any batch, whatever changes the logits", async () => {
  const bundle = await openBundle(INT8);
  const { manifest } = bundle;
  const lists = randomLists(manifest);
  const kernels = await openKernels(bundle, manifest.plan!);
  const listing = new LocalTranslator(bundle, kernels, await openTokenizers(manifest, bundle), lists);
  const texts = SENTENCES.slice(0, 4);
  const own = texts.map((text) => {
    const { listed, usable } = lists.listing([listing.encode(text)]);
    return new Set([...listed].filter((_, i) => usable[i]));
  });
  for (const options of [
    ...[{ beamSize: 1 }, { beamSize: 3, nBest: 3 }],
    ...[
      { suppressTokens: [5, 6], disableUnk: true },
      { minLength: 4, noRepeatNgramSize: 2 },
      { repetitionPenalty: 1.5 },
    ],
    ...[{ suppressSequences: [[5, 6], [7]] }, { returnAlternatives: true, nBest: 3 }],
  ]) {
    const together = await listing.translate(texts, { maxLength: 12, ...options });
    for (const [i, { hypotheses }] of together.entries()) {
      for (const { ids } of hypotheses)
        assert.ok(
          ids.every((id) => own[i]!.has(id)),
          JSON.stringify(options),
        );
      const [alone] = await listing.translate([texts[i]!], { maxLength: 12, ...options });
      assert.deepEqual(
        alone!.hypotheses.map(({ ids }) => ids),
        hypotheses.map(({ ids }) => ids),
        JSON.stringify(options),
      );
    }
  }
});

test("mistakes are errors that say what to do", async () => {
  const rejects = (options: object, message: RegExp, text = "A cat!") =>
    assert.rejects(translator.translate(text, options), (error) => {
      assert.ok(error instanceof EdgeformerError);
      assert.match(error.message, message);
      return true;
    });
  await rejects({ beamSize: 0 }, /`beamSize` must be a whole number from 1 to 1024, but is 0/);
  await rejects({ beamsize: 2 }, /Unknown: `beamsize`. Valid options: beamSize,/);
  await rejects({ beamSize: 2, nBest: 3 }, /`nBest` must be at most/);
  await rejects({ suppressTokens: ["no such token"] }, /is not a token of the target vocabulary/);
  await rejects({}, /Text 1 has \d+ tokens, but the model accepts at most/, "cat ".repeat(1000));
  await rejects({ targetPrefix: ["a", "b"] }, /one entry per text, 1/);
  const cut = await translator.translate("cat ".repeat(1000), { maxInputLength: 10, beamSize: 1 });
  assert.equal(cut.source.ids.length, 10);
  assert.ok(cut.source.truncated > 0);
});

test("a signal gives up a call", async () => {
  const controller = new AbortController();
  const found = translator.translate(Array(200).fill(SENTENCES).flat(), { signal: controller.signal });
  setTimeout(() => controller.abort(new Error("enough")), 50);
  await assert.rejects(found, /enough/);
});

test("memory is bounded over a thousand sentences, and a closed translator says so", async () => {
  const bundle = await openBundle(INT8);
  const kernels = await openKernels(bundle, bundle.manifest.plan!);
  const own = new LocalTranslator(bundle, kernels, await openTokenizers(bundle.manifest, bundle), undefined);
  const translate = async (count: number, options: object) => {
    for (let i = 0; i < count; i++) await own.translate(SENTENCES[i % SENTENCES.length]!, options);
  };
  const leave = async (count: number) => {
    for (let i = 0; i < count; i++) for await (const _ of own.translateTokens(SENTENCES[0]!)) break;
  };
  await translate(100, { beamSize: 2 });
  await translate(20, { beamSize: 2, minLength: 3 });
  await leave(20);
  const before = kernels.memoryBytes;
  await translate(1000, { beamSize: 2 });
  await translate(50, { beamSize: 2, minLength: 3 });
  await leave(200);
  assert.equal(kernels.memoryBytes, before);
  own.close();
  await assert.rejects(own.translate("A cat!"), /The translator is closed/);
});
