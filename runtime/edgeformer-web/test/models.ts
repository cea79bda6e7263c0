/** Models of a line of code, for rules that no real model would try in every place. */
import type { Manifest } from "../src/bundle/manifest.js";
import { WORD } from "../src/text/alignment.js";
import { type SentenceTranslator, TextTranslator } from "../src/text/text_translator.js";
import type { Tokenizer } from "../src/tokenizer/interface.js";

/** A document for tests; its own types are not those of TypeScript's DOM. */
export const { parseHTML }: { parseHTML(html: string): { document: Document } } = await import("linkedom" as string);

/** What a model writes for the words of a sentence; it attends to each word that it writes, in capitals or not. */
export type Model = (words: string[]) => string[];

/** A tokenizer of words, whose ids are their places in a list that grows. */
export function wordTokenizer(): Tokenizer {
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

/** What tests say of a model's manifest. */
export const MANIFEST: SentenceTranslator["manifest"] = {
  source_language: "en",
  target_language: "fr",
  max_source_length: 100,
  max_target_length: 200,
  traits: { min_confidence: null, needs_period: false },
  text: { source_prefix: [], source_suffix: ["</s>"] } as never,
};

/** A translator of sentences by such a model. */
export function sentenceTranslator(model: Model): SentenceTranslator {
  const tokenizer = wordTokenizer();
  const words = (text: string) => [...text.matchAll(WORD)].map(([word]) => word);
  return {
    manifest: MANIFEST,
    tokenizers: { source: tokenizer, target: tokenizer },
    sentences: async (texts) =>
      texts.map((text) => {
        const ids = model(words(text)).map((word) => tokenizer.tokenId(word)!);
        return { text: tokenizer.decode(ids), ids };
      }),
    attention: async (text, { ids }) => {
      const left: (string | undefined)[] = words(text).map((word) => word.toLowerCase());
      return ids.map((id) => {
        const index = left.indexOf(tokenizer.token(id)!.toLowerCase());
        if (index >= 0) left[index] = undefined;
        return left.map((_, source) => Number(source === index));
      });
    },
  };
}

/** A translator of pages by such a model. */
export function pageTranslator(model: Model): TextTranslator & { manifest: Manifest } {
  return Object.assign(new TextTranslator(sentenceTranslator(model)), { manifest: MANIFEST as Manifest });
}
