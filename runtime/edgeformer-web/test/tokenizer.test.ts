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
    for (let index = 0; index < 60; index++) {
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
  const { source } = await open(named("bpe.spm"));
  assert.throws(() => source.encode("a".repeat(2 ** 20 + 1)), { name: "EdgeformerError", kind: "input" });
  assert.throws(() => source.encode("a\ud800b"), { name: "EdgeformerError", kind: "input" });
});

/** A field of a message in protobuf's wire format. */
function field(number: number, content: Uint8Array | string): number[] {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  return [...varint(number * 8 + 2), ...varint(bytes.length), ...bytes];
}

function varint(value: number): number[] {
  return value > 0x7f ? [(value & 0x7f) | 0x80, ...varint(Math.floor(value / 128))] : [value];
}

/** Character rules of a trie and a replacement. */
function rules(replacement: string, trie = new Uint8Array(1024)): number[] {
  const size = new Uint8Array(Uint32Array.of(trie.length).buffer);
  return field(
    3,
    Uint8Array.from(field(2, Uint8Array.from([...size, ...trie, ...new TextEncoder().encode(replacement), 0]))),
  );
}

const HOSTILE: [string, number[] | ((data: Uint8Array) => Uint8Array), RegExp][] = [
  ["a group", [0x1b], /not a SentencePiece model/],
  [
    "a length beyond the file",
    [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    /not a SentencePiece model/,
  ],
  ["a field number beyond 29 bits", [0x9a, 0x80, 0x80, 0x80, 0x10, 0x00], /not a SentencePiece model/],
  ["a long piece", field(1, Uint8Array.from(field(1, "x".repeat(600)))), /a piece of more than 512 bytes/],
  ["a long replacement", rules("x".repeat(65)), /replaces a character with 65 bytes/],
  ["large rules", rules("x".repeat(2 ** 22)), /more than 4194304 bytes/],
  ["a trie of 6 bytes", rules("x", new Uint8Array(6)), /rules are damaged/],
  [
    "a long unknown token",
    field(2, Uint8Array.from(field(44, "x".repeat(65)))),
    /unknown tokens to more than 64 bytes/,
  ],
  ["an entry that is there twice", field(200, "a\0a"), /duplicated/],
  ["entries that are not text", field(200, Uint8Array.of(0xff)), /not valid UTF-8/],
  ["another kind", field(2, Uint8Array.of(0x18, 4)), /unigram or BPE/],
  ["two unknown pieces", field(1, Uint8Array.from([...field(1, "new"), 0x18, 2])), /one unknown piece/],
];
for (const [name, added, message] of HOSTILE)
  test(`a SentencePiece model with ${name} is refused`, async () => {
    const one = named("suffix.spm");
    const data = Uint8Array.from([...contentOf(one.path), ...(added as number[])]);
    await assert.rejects(open(one, data), { name: "EdgeformerError", kind: "bundle", message });
  });

test("a trie that leads anywhere ends", async () => {
  const one = named("suffix.spm");
  const trie = new Uint8Array(
    Uint32Array.from({ length: 256 }, (_, unit) => ((unit * 7 + 1) << 10) | 0x100 | unit).buffer,
  );
  const data = Uint8Array.from([...contentOf(one.path), ...rules("x", trie)]);
  const { source } = await open(one, data);
  assert(source.encode("any text \u{1f600}").length);
});

test("a special token that text could be encoded to is refused", async () => {
  const one = named("suffix.spm");
  await assert.rejects(open(one, contentOf(one.path), { xx: "<sep>" }), { message: /not a control piece/ });
});

test("components that are not supported are named", async () => {
  const one = named("unigram.json");
  const change = async (from: string, to: string, message: RegExp) => {
    const content = new TextDecoder().decode(contentOf(one.path));
    assert(content.includes(from));
    await assert.rejects(open(one, new TextEncoder().encode(content.replace(from, to))), { message });
  };
  await change('"type":"ByteLevel"', '"type":"Metaspace"', /component `Metaspace`, which is not supported/);
  await change('"type":"Unigram"', '"type":"WordPiece"', /model is a `WordPiece`, which is not supported/);
  await change('"special":true', '"special":false', /not a special one/);
});
