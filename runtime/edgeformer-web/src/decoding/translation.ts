/** What translators take and return. All of it can be posted to a worker. */
import type { Manifest } from "../bundle/manifest.js";
import type { Block } from "../text/block.js";
import type { BlockTranslation, TextOptions } from "../text/text_translator.js";
import type { OptionChanges, TokensOrText } from "./options.js";

/** The weight of every source token for every target token. */
export interface Attention {
  /** The S source tokens, special tokens included. */
  sourceTokens: string[];
  /** The T tokens of the translation, including the end token if there is one. */
  targetTokens: string[];
  /** T rows of S weights, which sum to 1. */
  weights: Float32Array[];
  /** The source token with the largest weight for each target token, as [source, target], without special tokens. */
  alignment: [number, number][];
}

/** One possible translation. */
export interface TextHypothesis {
  text: string;
  /** Tokens as the vocabulary writes them, without the end token and what every target begins with. */
  tokens: string[];
  ids: number[];
  /** Normalized log-probability; `null` if scores were not requested. */
  score: number | null;
  /** Whether it ended with the end token, rather than at the length limit or in a loop. */
  finished: boolean;
  /** Log-probability of each token, that of the end token included; 0 for those of a prefix; `null` if not requested. */
  tokenScores: number[] | null;
  /** Geometric mean of these probabilities. */
  confidence: number | null;
  attention: Attention | null;
}

/** The translation of one text. */
export interface Translation {
  /** Text of the best hypothesis. */
  text: string;
  source: {
    text: string;
    /** Token ids that the model read, end token included; none if the text is blank. */
    ids: number[];
    /** Number of tokens dropped from the end of the text. */
    truncated: number;
  };
  /** `nBest` translations, best first. */
  hypotheses: TextHypothesis[];
}

/** One step of a translation. */
export interface TokenStep {
  id: number;
  /** The new token as the vocabulary writes it. */
  token: string;
  logProbability: number;
  /** Text so far. Its end may change if the next token continues a character or a word. */
  text: string;
  isLast: boolean;
  /** The complete translation, with the last step. */
  translation: Translation | null;
}

/** Options of a call: changes of the model's decoding options, and what follows. */
export interface CallOptions extends OptionChanges {
  /** What translations begin with: one text for all; or text, tokens or `null` for each. */
  targetPrefix?: string | readonly (TokensOrText | null)[] | undefined;
  /** Language to translate from, for models with several: a BCP 47 tag or a code of the model. */
  sourceLanguage?: string | undefined;
  /** Language to translate to. */
  targetLanguage?: string | undefined;
  /** Restrict searches on the kernels to the tokens of the bundle's shortlist, if it has one; by default, true. */
  shortlist?: boolean | undefined;
  /** Gives the call up, which then fails with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Result of running the golden examples of a bundle. */
export interface GoldenResult {
  cases: number;
  /** Largest difference of a score among the examples whose tokens match. */
  maxScoreDifference: number;
  /** One sentence per difference; empty if the bundle works here as where it was exported. */
  problems: string[];
}

/** A model with its tokenizers, here or in a worker. */
export interface Translator {
  readonly manifest: Manifest;
  /** The engine that computes the model. */
  readonly engine: "kernels" | "onnxruntime";
  /** Whether translations can be asked for attention weights. */
  readonly hasAttention: boolean;

  /**
   * Translates sentences; the translation of a blank sentence is empty. For whole texts, see `translateText`.
   *
   * @throws EdgeformerError: a text is too long (`input`), an option is out of range (`option`), or the translator is
   *   closed (`closed`).
   */
  translate(text: string, options?: CallOptions): Promise<Translation>;
  translate(texts: readonly string[], options?: CallOptions): Promise<Translation[]>;

  /** Translates a sentence greedily, and yields each token as soon as it is decoded; nothing for a blank sentence. */
  translateTokens(text: string, options?: CallOptions): AsyncGenerator<TokenStep, void>;

  /** Translates the blocks of a text or document, sentence by sentence; see `translateText` and `translatePage`. */
  translateBlocks(
    blocks: readonly Block[],
    options?: CallOptions,
    textOptions?: TextOptions,
  ): Promise<BlockTranslation[]>;

  /** Runs the bundle's golden examples. */
  verify(): Promise<GoldenResult>;

  /** Frees the model. */
  close(): void;
}
