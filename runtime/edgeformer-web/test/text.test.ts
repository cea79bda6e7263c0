import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { Manifest } from "../src/bundle/manifest.js";
import { translatePage } from "../src/text/page.js";
import { plainBlock, translateText } from "../src/text/plain.js";
import { protectedItems } from "../src/text/protected.js";
import { sentenceSpans } from "../src/text/sentences.js";
import { finish, finished } from "../src/text/surface.js";
import { type SentenceTranslator, TextTranslator } from "../src/text/translator.js";
import { WORD } from "../src/text/words.js";
import type { Tokenizer } from "../src/tokenizer/interface.js";

/** A document for tests; its own types are not those of TypeScript's DOM. */
const { parseHTML }: { parseHTML(html: string): { document: Document } } = await import("linkedom" as string);

interface Recorded {
  source: string;
  text: string;
  tokens: string[];
  /** The source word that each token comes from, and its share of the attention. */
  order: number[];
  share: number;
}
interface Cases {
  translated: { format: "text" | "html"; text: string; sentences: Recorded[]; expected: string }[];
  surface: {
    source: string;
    target: string;
    language: string;
    is_upper: boolean;
    match: boolean;
    repeats: number;
    is_marked: boolean;
    expected: string;
  }[];
  protected: { text: string; expected: string[] }[];
  sentences: { language: string; text: string; expected: string[] }[];
}

const FILE = new URL("../../../../tests/web/cases/text.json", import.meta.url);
const cases: Cases = JSON.parse(readFileSync(FILE, "utf8"));

/** A tokenizer of words, whose ids are their places in a list that grows. */
function wordTokenizer(): Tokenizer {
  const known: string[] = [];
  const id = (word: string) => (known.includes(word) ? known.indexOf(word) : known.push(word) - 1);
  const words = (text: string) => [...text.matchAll(WORD)];
  const decode = (ids: readonly number[]) =>
    ids
      .map((index) => known[index])
      .join(" ")
      .replaceAll(" .", ".")
      .replaceAll(" !", "!")
      .replaceAll(" ,", ",")
      .replaceAll("' ", "'");
  return {
    size: 0,
    encode: (text) => words(text).map(([word]) => id(word)),
    decode,
    token: (index) => known[index],
    tokenId: id,
    spans: (text) => words(text).map((match) => [match.index, match.index + match[0].length]),
  };
}

/** A translator that writes what was recorded. */
function recorded(sentences: readonly Recorded[]): SentenceTranslator {
  const tokenizer = wordTokenizer();
  const bySource = new Map(sentences.map((sentence) => [sentence.source, sentence]));
  return {
    manifest: {
      source_language: "en",
      target_language: "fr",
      max_source_length: 100,
      max_target_length: 200,
      traits: { min_confidence: null, needs_period: false },
      text: { source_prefix: [], source_suffix: ["</s>"] } as never,
    },
    tokenizers: { source: tokenizer, target: tokenizer },
    sentences: async (texts) =>
      texts.map((text) => {
        const found = bySource.get(text);
        assert(found, `the model reads ${JSON.stringify(text)}, but ${JSON.stringify([...bySource.keys()])} in Python`);
        return { text: found.text, ids: found.tokens.map((token) => tokenizer.tokenId(token)!) };
      }),
    attention: async (text) => {
      const { order, share } = bySource.get(text)!;
      const { length } = tokenizer.spans(text);
      const rest = (0.8 - share) / Math.max(1, length - 1);
      return order.map((source) => Array.from({ length }, (_, index) => Math.fround(index === source ? share : rest)));
    },
  };
}

for (const [index, { format, text, sentences, expected }] of cases.translated.entries())
  test(`case ${index} is translated as in Python: ${text.slice(0, 60)}`, async () => {
    const translator = new TextTranslator(recorded(sentences));
    if (format === "text") {
      assert.equal(await translateText(translator, text), expected);
      return;
    }
    const page = parseHTML(`<html><body>${text}</body></html>`).document;
    const wanted = parseHTML(`<html><body>${expected}</body></html>`).document;
    const elements = new Set(page.body.querySelectorAll("*"));
    await translatePage(Object.assign(translator, { manifest: {} as Manifest }), page.body);
    assert.equal(page.body.innerHTML, wanted.body.innerHTML);
    assert.deepEqual(new Set(page.body.querySelectorAll("*")), elements);
  });

test("the surface of a translation is that of its source, as in Python", () => {
  for (const { source, target, language, is_upper, match, repeats, is_marked, expected } of cases.surface) {
    const change = finish(source, target, language, {
      isUpper: is_upper,
      matches: match,
      repeats,
      isMarked: is_marked,
    });
    assert.equal(finished(change, target), expected, `${source} -> ${target}`);
  }
});

test("what is protected is what Python protects", () => {
  for (const { text, expected } of cases.protected)
    assert.deepEqual(
      protectedItems(plainBlock(text)).map((item) => item.text),
      expected,
    );
});

test("sentences are those of Python", () => {
  for (const { language, text, expected } of cases.sentences)
    assert.deepEqual(
      sentenceSpans(text, language).map((span) => text.slice(...span)),
      expected,
    );
});
