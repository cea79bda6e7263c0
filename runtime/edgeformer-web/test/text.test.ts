import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { Manifest } from "../src/bundle/manifest.js";
import { WORD } from "../src/text/alignment.js";
import { differences } from "../src/text/numbers.js";
import { translatePage } from "../src/text/page.js";
import { plainBlock, translateText } from "../src/text/plain.js";
import { protectedItems } from "../src/text/protected.js";
import { sentenceSpans } from "../src/text/segmentation.js";
import { applied, repaired, surfaceChange } from "../src/text/surface.js";
import { type SentenceTranslator, TextTranslator } from "../src/text/text_translator.js";
import { MANIFEST, parseHTML, wordTokenizer } from "./models.js";

interface Recorded {
  source: string;
  text: string;
  tokens: string[];
  /** The source word that each token comes from, and its share of the attention. */
  order: number[];
  share: number;
}
interface Case {
  format: "text" | "html";
  text: string;
  sentences: Recorded[];
  expected: string;
}
/** What goes in, and what must come out, by rule. */
interface Rules {
  lost: [source: string, written: string, expected: string][];
  spaces: [language: string, source: string, written: string, expected: string][];
  surface: [
    source: string,
    target: string,
    language: string,
    expected: string,
    rules?: { is_upper?: boolean; match?: boolean; has_added_period?: boolean },
  ][];
  loops: [source: string, target: string, expected: string][];
  placeholders: string[];
  unprotected: string[];
  protected: [text: string, expected: string[]][];
  numbers: [source: string, target: string, languages: string, wrong: string[]][];
  sentences: [language: string, text: string, expected: string[]][];
}

const FOLDER = new URL("../../../../tests/web/cases/", import.meta.url);
const cases: Case[] = JSON.parse(readFileSync(new URL("text.json", FOLDER), "utf8"));
const rules: Rules = JSON.parse(readFileSync(new URL("rules.json", FOLDER), "utf8"));

/** A translator that writes what was recorded. */
function recorded(sentences: readonly Recorded[], language = "fr"): SentenceTranslator {
  const tokenizer = wordTokenizer();
  const bySource = new Map(sentences.map((sentence) => [sentence.source, sentence]));
  return {
    manifest: { ...MANIFEST, target_language: language },
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

for (const [index, { format, text, sentences, expected }] of cases.entries())
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
  for (const [source, target, language, expected, changes = {}] of rules.surface) {
    const { is_upper: isUpper = false, match: matches = true, has_added_period: hasAddedPeriod = false } = changes;
    const change = surfaceChange(source, target, language, { isUpper, matches, repeats: 4, hasAddedPeriod });
    assert.equal(applied(change, target), expected, `${source} -> ${target}`);
  }
  for (const [source, target, expected] of rules.loops) {
    const change = surfaceChange(source, target, "fr", {
      isUpper: false,
      matches: false,
      repeats: 4,
      hasAddedPeriod: false,
    });
    assert.equal(applied(change, target), expected, `${source} -> ${target}`);
  }
});

test("characters that tokens do not complete are those of the source, as in Python", () => {
  for (const [source, text, expected] of rules.lost) assert.equal(repaired(source, text), expected, source);
});

test("the space beside placeholders is that of Python", async () => {
  for (const [language, source, text, expected] of rules.spaces) {
    const tokens = [...text.matchAll(WORD)].map(([word]) => word);
    const length = [...source.matchAll(WORD)].length;
    const order = tokens.map((_, index) => Math.floor((index * length) / tokens.length));
    const translator = recorded([{ source, text, tokens, order, share: 0.8 }], language);
    assert.equal(
      await translateText(new TextTranslator(translator) as never, source),
      expected,
      `${source} -> ${text}`,
    );
  }
});

test("what is protected is what Python protects", () => {
  const protectedIn = (text: string) => protectedItems(plainBlock(text)).map((item) => item.text);
  for (const placeholder of rules.placeholders)
    assert.deepEqual(protectedIn(`The ${placeholder} runs.`), [placeholder], placeholder);
  for (const text of rules.unprotected) assert.deepEqual(protectedIn(text), [], text);
  for (const [text, expected] of rules.protected) assert.deepEqual(protectedIn(text), expected, text);
});

test("numbers are compared as in Python", () => {
  for (const [source, target, languages, wrong] of rules.numbers) {
    const [own, other] = languages.split("-") as [string, string];
    const { missing, surplus } = differences(source, target, [own, other]);
    const groups = [...missing, ...surplus].flatMap(([group, count]) => Array<string>(count).fill(group));
    assert.deepEqual(groups.sort(), [...wrong].sort(), `${source} -> ${target}`);
  }
});

test("sentences are those of Python", () => {
  for (const [language, text, expected] of rules.sentences)
    assert.deepEqual(
      sentenceSpans(text, language).map((span) => text.slice(...span)),
      expected,
      text,
    );
});
