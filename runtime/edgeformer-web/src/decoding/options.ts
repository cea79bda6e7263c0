/** How to search for a translation. Names and meanings are those of `DecodeOptions` in Python, in camel case. */
import { MAX_BEAM_SIZE, type Manifest } from "../bundle/manifest.js";
import { EdgeformerError } from "../errors.js";

/** A token id, or a token as the target vocabulary writes it. */
export type Token = number | string;
/** Tokens, or text, which the target tokenizer encodes. */
export type TokensOrText = string | readonly Token[];

/** Decoding options. The score of a hypothesis is its log-probability divided by `length ** lengthPenalty`. */
export interface DecodeOptions {
  /** Hypotheses kept per sentence (K); 1 is greedy search. */
  beamSize: number;
  /** Hypotheses returned per sentence, best first; at most `beamSize * patience`, except with `returnAlternatives`. */
  nBest: number;
  /** A sentence is finished when it has `beamSize * patience` finished hypotheses, rounded. */
  patience: number;
  /** Each finished hypothesis leaves one place fewer for unfinished ones, as in Marian. */
  beamShrinks: boolean;
  /** A sentence ends at as many finished hypotheses, even if an unfinished one scores higher. */
  earlyStopping: boolean;
  /** Exponent of the length by which log-probabilities are divided; 0 leaves them undivided. */
  lengthPenalty: number;
  /** Count the end token in that length. */
  lengthIncludesEnd: boolean;
  /** Minimum number of tokens before the end token. */
  minLength: number;
  /** Maximum number of tokens, end token included; `null` uses the model's limit, which also caps larger values. */
  maxLength: number | null;
  /** Limit each output to `maxLenA * sourceLength + maxLenB` tokens; no limit if both are 0. */
  maxLenA: number;
  /** See `maxLenA`. */
  maxLenB: number;
  /** Stop a hypothesis that ends with an n-gram repeated this often in a row, for n from 1 to 8; 0 stops none. */
  maxNgramRepeats: number;
  /** Truncate sources to this number of tokens, end token included; `null` refuses those that are too long. */
  maxInputLength: number | null;
  /** Forbid repeating n-grams of this size; 0 allows all. */
  noRepeatNgramSize: number;
  /** Divide positive logits, and multiply negative ones, of tokens that were generated before; 1 has no effect. */
  repetitionPenalty: number;
  /** Tokens that are never generated. */
  suppressTokens: readonly Token[];
  /** Sequences of tokens that are never generated: a text stands for its tokens with and without a space before it. */
  suppressSequences: readonly TokensOrText[];
  /** Never generate the unknown token. */
  disableUnk: boolean;
  /** If positive, `targetPrefix` is not forced but favored: as long as the output follows it, the probability `p` of its
   * next token becomes `(1 - beta) * p + beta`, and others become `(1 - beta) * p`. */
  prefixBiasBeta: number;
  /** Return translations that differ in the first token after the prefix, the most probable token first. */
  returnAlternatives: boolean;
  /** Leave out alternatives whose first token is less probable than this, except for the first alternative. */
  minAlternativeExpansionProb: number;
  /** Compute scores in greedy search too, which does not need them. */
  returnScores: boolean;
  /** Return the log-probability of each token. */
  returnTokenScores: boolean;
  /** Return attention weights, if the engine has them. */
  returnAttention: boolean;
}

/** Options of a call that differ from the model's. */
export type OptionChanges = { [Name in keyof DecodeOptions]?: DecodeOptions[Name] | undefined };

/** Options whose tokens are ids. */
export interface ReadyOptions extends DecodeOptions {
  suppressTokens: readonly number[];
  suppressSequences: readonly (readonly number[])[];
}

const MAX_OPTION = 2 ** 31 - 1;
/** Least and greatest value of each number, and whether it has to be whole. */
const RANGES: Partial<Record<keyof DecodeOptions, [number, number, "whole" | "real"]>> = {
  beamSize: [1, MAX_BEAM_SIZE, "whole"],
  nBest: [1, MAX_BEAM_SIZE, "whole"],
  patience: [Number.MIN_VALUE, 100, "real"],
  lengthPenalty: [-10, 10, "real"],
  minLength: [0, MAX_OPTION, "whole"],
  maxLength: [1, MAX_OPTION, "whole"],
  maxLenA: [0, 1000, "real"],
  maxLenB: [0, MAX_OPTION, "whole"],
  maxNgramRepeats: [0, MAX_OPTION, "whole"],
  maxInputLength: [1, MAX_OPTION, "whole"],
  noRepeatNgramSize: [0, MAX_OPTION, "whole"],
  repetitionPenalty: [Number.MIN_VALUE, Number.MAX_VALUE, "real"],
  prefixBiasBeta: [0, 1 - Number.EPSILON / 2, "real"],
  minAlternativeExpansionProb: [0, 1, "real"],
};

/** The defaults of a model. */
export function defaultOptions({ generation }: Manifest): DecodeOptions {
  return {
    beamSize: generation.beam_size,
    nBest: 1,
    patience: 1,
    beamShrinks: generation.beam_shrinks,
    earlyStopping: generation.early_stopping,
    lengthPenalty: generation.length_penalty,
    lengthIncludesEnd: generation.length_includes_end,
    minLength: 0,
    maxLength: null,
    maxLenA: generation.max_len_a,
    maxLenB: 0,
    maxNgramRepeats: 0,
    maxInputLength: null,
    noRepeatNgramSize: 0,
    repetitionPenalty: 1,
    suppressTokens: [],
    suppressSequences: [],
    disableUnk: false,
    prefixBiasBeta: 0,
    returnAlternatives: false,
    minAlternativeExpansionProb: 0,
    returnScores: true,
    returnTokenScores: false,
    returnAttention: false,
  };
}

/**
 * Returns the defaults with some values changed.
 *
 * @throws EdgeformerError of kind `option`: lists every value that is unknown or out of range.
 */
export function changedOptions(defaults: DecodeOptions, changes: OptionChanges): DecodeOptions {
  const given = Object.entries(changes).filter(([, value]) => value !== undefined);
  const unknown = given.filter(([name]) => !Object.hasOwn(defaults, name)).map(([name]) => `\`${name}\``);
  if (unknown.length)
    throw optionError(`Unknown: ${unknown.join(", ")}. Valid options: ${Object.keys(defaults).join(", ")}.`);
  const options: DecodeOptions = { ...defaults, ...Object.fromEntries(given) };
  let problems = Object.keys(options).flatMap((name) => problemOf(name as keyof DecodeOptions, options, defaults));
  if (!problems.length) problems = [...conflicts(options)];
  if (problems.length) throw optionError(`${problems.join("; ")}.`);
  return options;
}

/** Number of finished hypotheses at which beam search of a sentence ends. */
export function placesOf(options: DecodeOptions): number {
  return Math.max(1, Math.floor(options.beamSize * options.patience + 0.5));
}

export function optionError(message: string): EdgeformerError {
  return new EdgeformerError("option", message);
}

function problemOf(name: keyof DecodeOptions, options: DecodeOptions, defaults: DecodeOptions): string[] {
  const [value, fallback, range] = [options[name], defaults[name], RANGES[name]];
  const wrong = (what: string) => [`\`${name}\` must be ${what}, but is ${JSON.stringify(value)}`];
  if (value === fallback) return [];
  if (!range) {
    const kind = Array.isArray(fallback) ? "a list" : "true or false";
    const isRight = Array.isArray(fallback) ? Array.isArray(value) : typeof value === "boolean";
    return isRight ? [] : wrong(kind);
  }
  const [least, most, kind] = range;
  if (value === null && (name === "maxLength" || name === "maxInputLength")) return [];
  if (typeof value !== "number" || (kind === "whole" && !Number.isInteger(value)))
    return wrong(kind === "whole" ? "a whole number" : "a number");
  return least <= value && value <= most ? [] : wrong(`from ${least} to ${most}`);
}

function* conflicts(options: DecodeOptions): Generator<string> {
  const places = placesOf(options);
  if (!options.returnAlternatives && options.nBest > places)
    yield `\`nBest\` must be at most \`beamSize\` times \`patience\` (${places}), but is ${options.nBest}`;
  if (options.maxLength !== null && options.minLength > options.maxLength)
    yield `\`minLength\` must be at most \`maxLength\` (${options.maxLength}), but is ${options.minLength}`;
  if (options.maxNgramRepeats === 1) yield "`maxNgramRepeats` must be 0 or at least 2, but is 1";
  if (options.returnAlternatives && options.prefixBiasBeta)
    yield "`returnAlternatives` and `prefixBiasBeta` cannot be combined";
  if (options.beamShrinks && options.patience > 1) yield "`beamShrinks` and a `patience` above 1 cannot be combined";
  if (options.beamShrinks && !options.earlyStopping) yield "`beamShrinks` needs `earlyStopping`";
}
