/** Which languages a model translates between, and the tokens that say so. */
import type { TextFormat } from "../bundle/manifest.js";
import { optionError } from "./options.js";

const SOURCE_LANGUAGE = "{source_language}";
const TARGET_LANGUAGE = "{target_language}";
/** Codes that Argos Translate's packages have, and what they mean. */
const ALIASES: Readonly<Record<string, string>> = { zh: "zh-Hans", zt: "zh-Hant", pb: "pt-BR" };

/** Codes of the languages to translate from and to; empty if they are not known. */
export type LanguagePair = readonly [source: string, target: string];

/**
 * The codes of the languages that a model translates from and to: all that it has tokens for, where it takes or needs
 * one, else its own.
 */
function languagesBetween(format: TextFormat, own: LanguagePair): [string[], string[]] {
  const affixes = new Set([...format.source_prefix, ...format.source_suffix, ...format.target_prefix]);
  const all = Object.keys(format.languages);
  const side = (placeholder: string, code: string) =>
    affixes.has(placeholder) || (all.length > 0 && !code) ? all : code ? [code] : [];
  return [side(SOURCE_LANGUAGE, own[0]), side(TARGET_LANGUAGE, own[1])];
}

/**
 * The codes of the languages that a caller means: the model's own, or its only ones, where none is given.
 *
 * @throws EdgeformerError of kind `option`: the model does not have one.
 */
export function chosenLanguages(format: TextFormat, own: LanguagePair, given: LanguagePair): LanguagePair {
  const known = languagesBetween(format, own);
  const chosen = (["sourceLanguage", "targetLanguage"] as const).map((name, side) => {
    const [code, codes] = [given[side] || own[side]!, known[side]!];
    if (!code) return codes.length === 1 ? codes[0]! : "";
    const match = codes.length ? matchingCode(code, codes) : code;
    if (match !== undefined) return match;
    throw optionError(`\`${name}\` must be one of ${[...codes].sort().join(", ")}, but is \`${code}\`.`);
  });
  return [chosen[0]!, chosen[1]!];
}

/**
 * Replaces the placeholders in a prefix or suffix by the tokens of languages.
 *
 * @throws EdgeformerError of kind `option`: a language is needed, but the model does not have it.
 */
export function resolvedTokens(format: TextFormat, tokens: readonly string[], pair: LanguagePair): string[] {
  return tokens.map((token) => {
    const side = [SOURCE_LANGUAGE, TARGET_LANGUAGE].indexOf(token);
    if (side < 0) return token;
    const language = Object.hasOwn(format.languages, pair[side]!) ? format.languages[pair[side]!] : undefined;
    if (language !== undefined) return language;
    const known = Object.keys(format.languages).sort().join(", ") || "none";
    const name = side === 0 ? "sourceLanguage" : "targetLanguage";
    throw optionError(`\`${name}\` must be one of ${known}, but is \`${pair[side]}\`.`);
  });
}

/** The code that means the same language: the code itself in any case, an alias, or one with the same script. */
function matchingCode(code: string, known: readonly string[]): string | undefined {
  const meaning = (name: string) => (ALIASES[name] ?? name).toLowerCase();
  const same = known.find((name) => name.toLowerCase() === code.toLowerCase() || meaning(name) === meaning(code));
  return same ?? known.find((name) => written(meaning(name)) === written(meaning(code)));
}

/** Language and script of a tag, such as `pt-Latn` of `pt_BR`; a text of its own for what is not a tag. */
function written(tag: string): string | symbol {
  try {
    const { language, script } = new Intl.Locale(tag.replaceAll("_", "-")).maximize();
    return `${language}-${script}`;
  } catch {
    return Symbol(tag);
  }
}
