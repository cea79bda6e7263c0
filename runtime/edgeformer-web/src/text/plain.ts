/** Plain text. Its rules are loaded by the translator, which may be in a worker. */
import type { CallOptions, Translator } from "../decoding/translation.js";
import type { Block } from "./block.js";
import type { TextOptions } from "./text_translator.js";

/** A block of plain text. */
export function plainBlock(text: string): Block {
  return { text, tags: [], items: [], isMarkup: false };
}

/** Translates plain text of any length: paragraphs, lists, lines. */
export async function translateText(
  translator: Pick<Translator, "translateBlocks">,
  text: string,
  options: CallOptions = {},
  textOptions: TextOptions = {},
): Promise<string> {
  const [translated] = await translator.translateBlocks([plainBlock(text)], options, textOptions);
  return translated!.pieces.join("");
}
