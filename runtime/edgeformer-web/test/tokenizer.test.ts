import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { Manifest } from "../src/bundle/manifest.js";
import { EdgeformerError } from "../src/errors.js";
import { openTokenizers } from "../src/tokenizer/open.js";

interface Case {
  path: string;
  size: number;
  /** Names of special tokens, and their ids. */
  text: { pad: string; unk: string; bos: string; eos: string; suppress: string[] };
  special: { pad: number; unk: number; bos: number; eos: number; suppress: number[] };
  lines: { text: string; ids: number[]; spans: [number, number][]; decoded: string }[];
}

const ROOT = new URL("../../../../", import.meta.url);
const cases: Case[] = JSON.parse(readFileSync(new URL("tests/web/cases/tokenizers.json", ROOT), "utf8"));
const contentOf = (path: string) => new Uint8Array(readFileSync(new URL(path, ROOT)));
const named = (end: string) => cases.find(({ path }) => path.endsWith(end))!;

/** Opens a file as that of a bundle. */
async function open({ path, text, special }: Case, data = contentOf(path), languages = {}) {
  const name = path.split("/").at(-1)!;
  const manifest = {
    text: { ...text, forbid: [], languages },
    special: { ...special, forbid: [] },
    tokenizers: { source: name, target: name },
    source_vocab_size: 2 ** 20,
    target_vocab_size: 2 ** 20,
  };
  return openTokenizers(manifest as unknown as Manifest, { read: async () => data });
}

for (const one of cases) {
  test(`${one.path} gives the ids, spans and text that Python gives`, async () => {
    const { source } = await open(one);
    assert.equal(source.size, one.size);
    for (const { text, ids, spans, decoded } of one.lines) {
      assert.deepEqual(source.encode(text), ids, JSON.stringify(text));
      assert.deepEqual(source.spans(text), spans, JSON.stringify(text));
      assert.equal(source.decode(ids), decoded);
    }
  });

  test(`no text is encoded to a special token of ${one.path}`, async () => {
    const { source } = await open(one);
    const { pad, unk, bos, eos, suppress } = one.text;
    const special = [pad, bos, eos, ...suppress].filter((name) => name !== unk);
    const ids = new Set(special.map((name) => source.tokenId(name)));
    for (const text of [special.join(" "), special.join(""), `a ${eos}${bos} b`])
      assert.deepEqual(
        source.encode(text).filter((id) => ids.has(id)),
        [],
      );
  });

  test(`damaged copies of ${one.path} are refused or open, and soon`, async () => {
    const data = contentOf(one.path);
    for (const length of [0, 1, 7, data.length >> 1, data.length - 1])
      await assert.rejects(open(one, data.slice(0, length)), EdgeformerError, `${length} bytes`);
    for (let index = 0; index < 20; index++) {
      const copy = data.slice();
      const offset = (index * 7919) % Math.min(copy.length, 4096);
      copy[offset] = (copy[offset]! + 1 + index * 31) % 256;
      try {
        (await open(one, copy)).source.encode("a dog </s> é \u{1f600}");
      } catch (error) {
        if (!(error instanceof EdgeformerError)) throw error;
      }
    }
  });
}

test("long texts are encoded in time that grows hardly faster than they do", async () => {
  for (const one of cases) {
    const { source } = await open(one);
    const start = process.cpuUsage(); // whatever else the machine does
    source.encode("ab".repeat(100_000));
    source.encode("word ".repeat(20_000));
    const { user, system } = process.cpuUsage(start);
    assert(user + system < 10_000_000, one.path);
  }
});

test("texts that are too long, or not valid Unicode, are refused", async () => {
  const { source } = await open(named("bpe.json"));
  assert.throws(() => source.encode("a".repeat(2 ** 20 + 1)), { name: "EdgeformerError", kind: "input" });
  assert.throws(() => source.encode("a\ud800b"), { name: "EdgeformerError", kind: "input" });
});

/** A tokenizer file as JSON. */
type Tree = Record<string, unknown> & Record<"pieces" | "scores" | "control", unknown[]>;

/** The content of a file after a change. */
function changed(one: Case, change: (tree: Tree) => unknown): Uint8Array<ArrayBuffer> {
  const tree: Tree = JSON.parse(new TextDecoder().decode(contentOf(one.path)));
  change(tree);
  return new TextEncoder().encode(JSON.stringify(tree));
}

/** Character rules of a trie and a replacement. */
function rules(replacement: string, trie = new Uint8Array(1024)): { charsmap: string } {
  const size = new Uint8Array(Uint32Array.of(trie.length).buffer);
  return { charsmap: Buffer.from([...size, ...trie, ...Buffer.from(replacement), 0]).toString("base64") };
}

const HOSTILE: [string, (tree: Tree) => unknown, RegExp][] = [
  ["another kind", (tree) => Object.assign(tree, { kind: "moses" }), /must be an object with kind `sentencepiece`/],
  ["another model", (tree) => Object.assign(tree, { model: "word" }), /`model` must be one of bpe, unigram/],
  ["a field too many", (tree) => Object.assign(tree, { surprise: 1 }), /`surprise` is unknown/],
  ["a score too few", (tree) => tree.scores.pop(), /a score for each piece/],
  ["a score beyond float32", (tree) => tree.scores.fill(1e39), /`scores\[0\]` must be a number from/],
  ["a number of no piece", (tree) => tree.control.push(99999), /a piece that does not exist/],
  ["a long piece", (tree) => tree.pieces.fill("x".repeat(600), 5, 6), /`pieces\[5\]` must be a text of 1 to 128/],
  ["a piece twice", (tree) => tree.pieces.fill(tree.pieces[6], 5, 6), /duplicated/],
  ["a piece for one byte", (tree) => Object.assign(tree, { byte: [5] }), /256 pieces for bytes/],
  ["a long replacement", (tree) => Object.assign(tree, { normalizer: rules("x".repeat(65)) }), /more than 64 bytes/],
  ["large rules", (tree) => Object.assign(tree, { normalizer: rules("x".repeat(2 ** 23)) }), /`normalizer.charsmap`/],
  [
    "a trie of 6 bytes",
    (tree) => Object.assign(tree, { normalizer: rules("x", new Uint8Array(6)) }),
    /rules are damaged/,
  ],
  ["rules that are not base64", (tree) => Object.assign(tree, { normalizer: { charsmap: "?" } }), /not base64/],
  ["a long unknown token", (tree) => Object.assign(tree, { unk_surface: "x".repeat(65) }), /`unk_surface`/],
  ["an entry that is there twice", (tree) => Object.assign(tree, { vocabulary: ["a", "a"] }), /duplicated/],
];
for (const [name, change, message] of HOSTILE)
  test(`a SentencePiece model with ${name} is refused`, async () => {
    const one = named("suffix.json");
    await assert.rejects(open(one, changed(one, change)), { name: "EdgeformerError", kind: "bundle", message });
  });

test("a trie that leads anywhere ends", async () => {
  const one = named("suffix.json");
  const units = Uint32Array.from({ length: 256 }, (_, unit) => ((unit * 7 + 1) << 10) | 0x100 | unit);
  const normalizer = rules("x", new Uint8Array(units.buffer));
  const { source } = await open(
    one,
    changed(one, (tree) => Object.assign(tree, { normalizer })),
  );
  assert(source.encode("any text \u{1f600}").length);
});

test("a special token that text could be encoded to is refused", async () => {
  const one = named("suffix.json");
  await assert.rejects(open(one, contentOf(one.path), { xx: "<sep>" }), { message: /not a control piece/ });
});

test("components that are not supported are named", async () => {
  const one = named("unigram.json");
  const change = async (from: string, to: string, message: RegExp) => {
    const content = new TextDecoder().decode(contentOf(one.path));
    assert(content.includes(from));
    await assert.rejects(open(one, new TextEncoder().encode(content.replace(from, to))), { message });
  };
  await change(
    '"type":"ByteLevel"',
    '"type":"Metaspace"',
    /`pre_tokenizer.pretokenizers\[0\]` must be an object with type `ByteLevel` or/,
  );
  await change('"type":"Unigram"', '"type":"WordPiece"', /`model` must be an object with type `BPE` or/);
  await change('"special":true', '"special":false', /not a special one/);
});
