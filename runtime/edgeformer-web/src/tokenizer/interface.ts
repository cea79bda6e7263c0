/**
 * Converts between text and token ids. No text can produce the ids of special tokens: those of `pad`, `unk`, `bos` and
 * `eos`, of `suppress` and of `languages` in the manifest's `text`. The unknown token alone stands for unknown text.
 */
export interface Tokenizer {
  /** Entries of the vocabulary; ids are below this. */
  readonly size: number;

  /**
   * Encodes a text, without special tokens.
   *
   * @throws EdgeformerError of kind `input`: the text is too long, or contains a lone surrogate.
   */
  encode(text: string): number[];

  /** Decodes ids to text. Special tokens are dropped. */
  decode(ids: readonly number[]): string;

  /** The id of an entry of the vocabulary; undefined if there is no such entry. */
  tokenId(token: string): number | undefined;

  /** The entry with an id, as the vocabulary writes it; undefined if there is no such id. */
  token(id: number): string | undefined;

  /** Which characters of a text each of its tokens stands for, as [start, end] in UTF-16 units; they may be empty. */
  spans(text: string): [number, number][];
}

/** Reads files of a bundle, whose hashes are checked. */
export interface FileReader {
  /** @throws EdgeformerError of kind `bundle`: the manifest does not list the file, or it is damaged. */
  read(name: string): Promise<Uint8Array<ArrayBuffer>>;
}

/** The tokenizers of both sides; the same object if they share a file. */
export interface Tokenizers {
  source: Tokenizer;
  target: Tokenizer;
}
