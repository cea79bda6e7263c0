/** Target tokens that callers give: prefixes of translations and tokens that may not be generated. */
import { EdgeformerError } from "../errors.js";
import type { Tokenizer } from "../tokenizer/interface.js";
import { type DecodeOptions, type IdOptions, optionError, type Token, type TokensOrText } from "./options.js";

/**
 * The ids of text or tokens.
 *
 * @param name what they are for, for the error.
 * @throws EdgeformerError of kind `option`: a token is not in the vocabulary, or the text cannot be encoded.
 */
export function tokenIds(tokenizer: Tokenizer, tokens: TokensOrText, name: string): number[] {
  if (typeof tokens === "string") {
    try {
      return tokenizer.encode(tokens);
    } catch (error) {
      if (error instanceof EdgeformerError) throw optionError(`${name}: ${error.message}`);
      throw error;
    }
  }
  if (!Array.isArray(tokens)) throw optionError(`${name} must be a text or a list of tokens.`);
  return tokens.map((token) => tokenId(tokenizer, token, name));
}

/**
 * The ids of the target prefix of each text.
 *
 * @param prefixes text for all; or text, tokens or `null` for each.
 * @param barred the start, end and padding tokens.
 */
export function prefixIds(
  tokenizer: Tokenizer,
  prefixes: string | readonly (TokensOrText | null)[] | undefined,
  count: number,
  barred: readonly number[],
): number[][] {
  const given =
    typeof prefixes === "string" ? Array<string>(count).fill(prefixes) : (prefixes ?? Array(count).fill(null));
  if (!Array.isArray(given) || given.length !== count)
    throw optionError(`\`targetPrefix\` must be a text, or a list with one entry per text, ${count}.`);
  return given.map((prefix: TokensOrText | null, index) => {
    const name = `The target prefix of text ${index + 1}`;
    const ids = prefix === null ? [] : tokenIds(tokenizer, prefix, name);
    if (ids.some((id) => barred.includes(id)))
      throw optionError(`${name} must not contain the start, end or padding token.`);
    return ids;
  });
}

/** Options whose tokens and texts are replaced with ids. */
export function withIds(tokenizer: Tokenizer, options: DecodeOptions): IdOptions {
  const sequences = options.suppressSequences.flatMap((sequence) => {
    const isWords = typeof sequence === "string" && sequence.trim() !== "";
    const spellings = isWords ? [sequence, ` ${sequence}`] : [sequence];
    return spellings.map((spelling) => tokenIds(tokenizer, spelling, "`suppressSequences`"));
  });
  if (sequences.some((sequence) => !sequence.length)) throw optionError("`suppressSequences` must not be empty.");
  return {
    ...options,
    suppressTokens: tokenIds(tokenizer, options.suppressTokens, "`suppressTokens`"),
    suppressSequences: sequences,
  };
}

function tokenId(tokenizer: Tokenizer, token: Token, name: string): number {
  const id = typeof token === "string" ? tokenizer.tokenId(token) : token;
  if (id === undefined) throw optionError(`${name}: \`${token}\` is not a token of the target vocabulary.`);
  if (Number.isInteger(id) && 0 <= id && id < tokenizer.size) return id;
  throw optionError(`${name}: a token id must be between 0 and ${tokenizer.size - 1}, but is ${token}.`);
}
