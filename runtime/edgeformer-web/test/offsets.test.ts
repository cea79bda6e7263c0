import assert from "node:assert/strict";
import { test } from "node:test";
import { written } from "../src/text/block.js";
import { pageBlocks, translatePage } from "../src/text/page.js";
import { translateText } from "../src/text/plain.js";
import { fittingSpans, sentenceSpans } from "../src/text/segmentation.js";
import { TextTranslator } from "../src/text/text_translator.js";
import { type Model, pageTranslator, parseHTML, sentenceTranslator } from "./models.js";

/** Characters of one and of two UTF-16 units, which every rule treats alike. */
const PAIRS: Record<string, [string, string]> = {
  symbols: ["☃", "😀"],
  letters: ["ᚠ", "𐌰"],
  "small letters": ["ⰰ", "𐐨"],
  capitals: ["Ⰰ", "𐐀"],
  "letters of a script without spaces": ["㐀", "𠀀"],
  marks: ["\ua80b", "\u{11038}"],
  punctuation: ["‡", "𐄀"],
  "ends of sentences": ["᙮", "𑁇"],
};
const PAGES = [
  '<p title="Big dog">The <b>old dog</b> runs<img>f\u00adast,  {name}<sup>2</sup>. Take <i translate="no">Ab</i> 350 <u>now</u>!</p>',
  "<p>THE OLD <b>DOG RUNS</b> FAST {X}<br>IN <code>a</code><i></i>JUNE</p>",
  '<p>"a/b": (1<img>2)</p>',
];
/** What a model may write for the words of a sentence. */
const MODELS: Record<string, Model> = {
  copies: (words) => words,
  "turns around": (words) => [...words].reverse(),
  "leaves out what is no word": (words) => words.filter((word) => /\p{L}/u.test(word)),
};

/** Every text in which a character is put into an HTML document outside its tags. */
function* insertions(html: string, character: string): Generator<string> {
  let isTag = false;
  for (let offset = 0; offset <= html.length; offset++) {
    if (!isTag) yield html.slice(0, offset) + character + html.slice(offset);
    isTag = isTag ? html[offset] !== ">" : html[offset] === "<";
  }
}

/** A text with the other character in place of one, in either case. */
function swapped(text: string, single: string, double: string): string {
  return text
    .replaceAll(single.toUpperCase(), double.toUpperCase())
    .replaceAll(single.toLowerCase(), double.toLowerCase());
}

async function translated(html: string, model: Model): Promise<string> {
  const { body } = parseHTML(`<html><body>${html}</body></html>`).document;
  await translatePage(pageTranslator(model), body);
  return body.innerHTML;
}

for (const [name, [single, double]] of Object.entries(PAIRS))
  test(`${name} of two UTF-16 units are translated as those of one, at every offset of a page`, async () => {
    for (const [does, model] of Object.entries(MODELS))
      for (const html of PAGES)
        for (const page of insertions(html, single)) {
          const expected = swapped(await translated(page, model), single, double);
          const found = await translated(page.replace(single, double), model);
          assert.equal(found, expected, `a model that ${does}: ${page}`);
        }
  });

test("what a page has is written as it is, in any characters", () => {
  for (const [single, double] of Object.values(PAIRS))
    for (const html of PAGES)
      for (const page of insertions(html, double)) {
        const { body } = parseHTML(`<html><body>${page}</body></html>`).document;
        for (const { block } of pageBlocks(body)) {
          const spaces = (text: string) => text.replace(/\s/g, "");
          const text = written(block, 0, block.text.length).map((piece) => (typeof piece === "string" ? piece : ""));
          const shown = block.items.reduceRight(
            (rest, { start, end }) => rest.slice(0, start) + rest.slice(end),
            block.text,
          );
          assert.equal(spaces(text.join("")), spaces(shown), `${single}: ${page}`);
          assert.equal(text.join("").length, shown.length - (block.added?.size ?? 0));
        }
      }
});

test("no character is divided, however long the line", async () => {
  const limits = [4095, 4096, 8191, 8192];
  for (const character of ["😀", "𠀀", "𐐨", "👩🏽‍🚀", "𑀓\u{11038}"])
    for (const before of ["", "a", "ab", "a b, c d"])
      for (const length of limits) {
        const text = before + character.repeat(Math.ceil(length / character.length));
        for (const span of sentenceSpans(text, "en")) assert.doesNotMatch(text.slice(...span), /\p{Surrogate}/u);
        const spans = fittingSpans(text, [[0, text.length]], [], 9, (part) => [...part].length);
        for (const span of spans) assert.ok(isWhole(text.slice(...span)), before + character);
      }
  const translator = new TextTranslator(sentenceTranslator(MODELS.copies!), { matchSurface: false });
  for (const text of ["😀", "𠀀", "a𐐨"].map((part) => part.repeat(5000))) {
    assert.equal((await translateText(translator, text)).replaceAll(" ", ""), text);
  }
});

test("every part of a text that is too long fits, even if it is one character as readers see it", () => {
  const texts = ["a\u0301", "\u{11038}", "👩\u200d", "\u200d", "é\ufe0f", "x"].map((part) => part.repeat(3000));
  for (const text of [...texts, `a ${texts.join(" b, ")}`])
    for (const [start, end] of fittingSpans(text, [[0, text.length]], [], 9, (part) => [...part].length)) {
      assert.ok([...text.slice(start, end)].length <= 9);
      assert.doesNotMatch(text.slice(start, end), /\p{Surrogate}/u);
    }
});

/** Whether a text begins and ends between characters: not inside a pair of units, nor before a mark. */
const isWhole = (text: string): boolean => !/\p{Surrogate}/u.test(text) && !/^\p{M}/u.test(text);
