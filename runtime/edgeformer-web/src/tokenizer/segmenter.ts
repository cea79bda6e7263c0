/** What all kinds of tokenizers share: checks of texts, and special tokens, which no text is encoded to. */
import { EdgeformerError } from "../errors.js";
import type { Tokenizer } from "./interface.js";

/** Characters of a text. Tokenizing that many takes seconds. */
const MAX_CHARACTERS = 2 ** 20;

/** A token of a text. */
export interface Token {
  id: number;
  /** Its characters, in UTF-16 units; none if it is a part of one. */
  start: number;
  end: number;
}

/** What divides text into entries of a vocabulary, whatever kind of file defines it. Immutable. */
export interface Segmenter {
  readonly size: number;
  token(id: number): string | undefined;
  tokenId(name: string): number | undefined;
  /** Divides valid Unicode. */
  tokens(text: string): Token[];
  decode(ids: readonly number[]): string;
}

/** A tokenizer of any kind. Immutable. */
export class SegmentingTokenizer implements Tokenizer {
  /**
   * @param segmenter divides text.
   * @param special ids that are not decoded.
   */
  constructor(
    private readonly segmenter: Segmenter,
    private readonly special: ReadonlySet<number>,
  ) {}

  get size(): number {
    return this.segmenter.size;
  }

  token(id: number): string | undefined {
    return this.segmenter.token(id);
  }

  tokenId(token: string): number | undefined {
    return this.segmenter.tokenId(token);
  }

  encode(text: string): number[] {
    return this.tokens(text).map(({ id }) => id);
  }

  spans(text: string): [number, number][] {
    return this.tokens(text).map(({ start, end }) => [start, end]);
  }

  decode(ids: readonly number[]): string {
    return this.segmenter.decode(ids.filter((id) => !this.special.has(id)));
  }

  private tokens(text: string): Token[] {
    if (text.length > MAX_CHARACTERS)
      throw new EdgeformerError(
        "input",
        `A text has ${text.length} characters, but may have at most ${MAX_CHARACTERS}; split it.`,
      );
    if (/\p{Surrogate}/u.test(text))
      throw new EdgeformerError(
        "input",
        "A text must be valid Unicode, but contains a lone surrogate; replace it by U+FFFD.",
      );
    return this.segmenter.tokens(text);
  }
}
