/** What computes a model. N sentences have K rows each (K is 1 at first), R rows in all; V target tokens, C listed ones. */

/** The target tokens that the sentences of a batch may use. */
export interface Listing {
  /** Tokens in ascending order, (C,). */
  listed: Int32Array;
  /** Whether each sentence may use each of them, (N, C). */
  usable: Uint8Array;
}

/** A search that the kernels run by themselves. Meanings are those of `DecodeOptions` in Python. */
export interface PlainSearch {
  beams: number;
  /** Hypotheses to return for each sentence, at least `places`. */
  hypotheses: number;
  /** Finished hypotheses at which a sentence ends. */
  places: number;
  shrinks: boolean;
  stopsEarly: boolean;
  countsEnd: boolean;
  /** Whether an end in the first step counts only if it is the best extension. */
  followsPrefix: boolean;
  /** Greedy search is faster without scores. */
  wantsScores: boolean;
  lengthPenalty: number;
  /** Tokens before the search that count in the length. */
  givenLength: number;
  /** The token that ends a target. */
  end: number;
  /** Tokens that do not exist. */
  suppressed: readonly number[];
  /** Tokens that are never generated, but have probabilities. */
  forbidden: readonly number[];
  /** A hypothesis ends unfinished when it ends with the same tokens so often in a row; 0 for never. */
  loopRepeats: number;
  /** Tokens at the end of what the target begins with that count for this, too. */
  loopGiven: number;
}

/** A sentence to search for. */
export interface SearchSentence {
  /** Source tokens, end token included. */
  source: readonly number[];
  /** Tokens that the target begins with, the start token first; as many for every sentence of a batch. */
  begin: readonly number[];
  /** Tokens that it may have after them, the end token included. */
  most: number;
  /** Log-probability before the search. */
  initial: number;
}

/** One possible output of one sentence. */
export interface Hypothesis {
  /** Token ids, without the end token and what every target begins with. */
  ids: number[];
  /** Normalized log-probability. */
  score: number;
  /** Whether it ended with the end token, rather than at the length limit or in a loop. */
  finished: boolean;
  /** Log-probability of each token, that of the end token included. */
  tokenScores: number[];
}

/** A sentence that is decoded step by step. */
export interface EngineBatch {
  /**
   * Advances every row by one token.
   *
   * @param tokens last token of each row, (R,).
   * @returns logits (R, V), or (R, C) if tokens are listed; valid until the next call. Logits of tokens that may not be
   *   used are negative infinity.
   */
  step(tokens: readonly number[]): Promise<Float32Array>;
  /** Continues with other rows: for each, the row that it continues; at least one. */
  select(rows: readonly number[]): Promise<void>;
  /** Frees the batch. */
  end(): void;
}

/** An opened model. */
export interface Engine {
  readonly name: "kernels" | "onnxruntime";

  /**
   * Encodes a sentence, which has one row at first.
   *
   * @param listing tokens that it may use; undefined for all. Only the kernels get one.
   */
  start(source: readonly number[], listing: Listing | undefined): Promise<EngineBatch>;

  /**
   * Searches to the end of every sentence; undefined if the engine cannot search by itself.
   *
   * @returns for each sentence, its hypotheses, best first.
   * @throws EdgeformerError of kind `model`: no token has a finite log-probability.
   */
  search?(sentences: readonly SearchSentence[], listing: Listing | undefined, options: PlainSearch): Hypothesis[][];

  /**
   * Feeds the tokens of a target.
   *
   * @param fed the start token, and all tokens of the target but the last.
   * @returns what each step attends to, one weight per source token.
   */
  attention(source: readonly number[], fed: readonly number[]): Promise<Float32Array[]>;

  /** Frees the model; no batch may be in use. */
  close(): void;
}
