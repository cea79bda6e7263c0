/** What all kinds of tokenizers share: a vocabulary, checks of texts, and special tokens, which no text is encoded to. */
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

/** A tokenizer of any kind. Immutable. */
export abstract class BaseTokenizer implements Tokenizer {
  /** Entries of the vocabulary by their ids, and ids by their entries. */
  protected abstract readonly names: readonly string[];
  protected abstract readonly ids: ReadonlyMap<string, number>;

  /** @param special names of tokens that no text may be encoded to, and that are not decoded. */
  constructor(protected readonly special: ReadonlySet<string>) {}

  /** Divides valid Unicode. */
  protected abstract tokens(text: string): Token[];
  /** Writes tokens, none of which is special. */
  protected abstract written(ids: readonly number[]): string;

  get size(): number {
    return this.names.length;
  }

  token(id: number): string | undefined {
    return this.names[id];
  }

  tokenId(name: string): number | undefined {
    return this.ids.get(name);
  }

  encode(text: string): number[] {
    return this.checkedTokens(text).map(({ id }) => id);
  }

  spans(text: string): [number, number][] {
    return this.checkedTokens(text).map(({ start, end }) => [start, end]);
  }

  decode(ids: readonly number[]): string {
    return this.written(ids.filter((id) => id < this.size && !this.special.has(this.names[id]!)));
  }

  private checkedTokens(text: string): Token[] {
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
    return this.tokens(text);
  }
}
