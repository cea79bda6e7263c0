/** What distinguishes a sentence on its surface only: capitals and final punctuation, and loops of the model. */
import lexicon from "./lexicon.json" with { type: "json" };
import { baseCode, hasLetters, isLower, isUpper, python, trim, trimEnd, trimStart, UNSPACED } from "./patterns.js";

const {
  closing: CLOSING,
  questions: QUESTIONS,
  exclamations: EXCLAMATIONS,
  terminators,
  ...patterns
} = lexicon.surface;
/** Final punctuation: Unicode's, the ellipsis, the shads of Tibetan; after a Greek letter, a semicolon is a question mark. */
const TERMINATOR = "[\\p{Sentence_Terminal}…\\u0f0d-\\u0f11\\u17d4\\u17d5]";
const FINAL = new RegExp(
  `(?<!${TERMINATOR})(?:${TERMINATOR}|(?<=[\\u0370-\\u03ff\\u1f00-\\u1fff])[;\\u037e])+[${CLOSING}]*$`,
  "u",
);
/** The end of a sentence in Thai or Lao, which write no period. */
const UNMARKED = new RegExp(`[\\u0e00-\\u0eff][${CLOSING}]*$`, "u");
const CLOSED = new RegExp(`[${CLOSING}]+$`, "u");
const ELLIPSIS = /^(?:\.{3,}|…+)/u;
/** Final punctuation where it differs from that of English. */
const TERMINATORS = new Map(
  Object.entries(terminators).flatMap(([codes, own]) => codes.split(" ").map((code) => [code, own] as const)),
);
/** The terminator of a language for one of English. */
const terminatorOf = (code: string, terminator: string): string =>
  TERMINATORS.get(code)?.[".?!".indexOf(terminator)] ?? terminator;
const COPIES = python(`^(?:${patterns.copies})$`, "i");
const REPEATED = python(`^(?:${patterns.repeated})$`, "i");
const ABBREVIATION = python(patterns.abbreviation, "i");
const LETTERS = python("[^\\W\\d_]+", "g");
const SIGN = python("(?!\\p{ASCII})[\\p{P}\\p{S}]");
const SPACE_OR_UNSPACED = python(`[\\s${UNSPACED}]`);
/** Characters at the end of a text in which copies are searched for. */
const SEARCHED = 2000;
/** Text with fewer letters may be an acronym. */
const MIN_CAPITALS = 6;

/** The period of a language; empty if it has none. */
export const period = (language: string): string => terminatorOf(baseCode(language), ".");
/** Whether a sentence ends with a word or number. */
export const lacksPeriod = (text: string): boolean => endsWithWord(text.replace(CLOSED, ""));
/** Whether a text ends with a letter, with its vowel signs and accents, or a digit. */
const endsWithWord = (text: string): boolean => /[\p{L}\p{M}\p{N}]$/u.test(text);
/** The terminator of English that one of any script stands for. */
const uniform = (terminator: string): string =>
  QUESTIONS.includes(terminator) ? "?" : EXCLAMATIONS.includes(terminator) ? "!" : terminator === "…" ? "…" : ".";

/** The first character of a text; empty if it has none. */
const firstOf = ([first = ""]: string): string => first;

const isMixed = (word: string): boolean =>
  /\p{Uppercase}/u.test([...word].slice(1).join("")) && /\p{Lowercase}/u.test(word);

/** Whether all letters of a text but those of mixed words are capitals, and enough of them that it is no acronym. */
export function inCapitals(text: string): boolean {
  const plain = text.replace(LETTERS, (word) => (isMixed(word) ? "" : word));
  return isUpper(plain) && (plain.match(/\p{Uppercase}/gu)?.length ?? 0) >= MIN_CAPITALS;
}

/** Text in lowercase but for its first letter and mixed words; the text itself if capitals do not give it back. */
export function lowered(text: string): string {
  let small = text.replace(LETTERS, (word) => (isMixed(word) ? word : word.toLowerCase()));
  const first = [...small.matchAll(LETTERS)][0];
  if (first && !isMixed(first[0]))
    small = small.slice(0, first.index) + initial({ first: firstOf(first[0]).toUpperCase() }, small.slice(first.index));
  return small.length === text.length && small.toUpperCase() === text.toUpperCase() ? small : text;
}

/** A translation without U+FFFD, which stands for a character that its tokens do not complete. The signs of the source
 * that the translation lacks replace it, if there are as many; a source that has U+FFFD itself changes nothing. */
export function repaired(source: string, text: string): string {
  const count = source.includes("\ufffd") ? 0 : (text.match(/\ufffd+/g)?.length ?? 0);
  const lacked = [...source].filter((sign) => SIGN.test(sign) && !text.includes(sign));
  const signs = lacked.length === count ? lacked : [];
  return count ? text.replace(/\ufffd+/g, () => signs.shift() ?? "") : text;
}

/** How a translation is changed: it is cut, and something is added. */
export interface SurfaceChange {
  /** Characters to keep. */
  keep: number;
  /** What follows them. */
  added: string;
  /** Whether it is written in capitals, but for words such as `iPhone`. */
  isUpper: boolean;
  names: readonly string[];
  /** Its first letter, if that is another one. */
  first: string;
}

/** Writes a text in capitals if it must be. */
export function capitals({ isUpper, names }: SurfaceChange, text: string): string {
  if (!isUpper) return text;
  const spelled = new Map(names.map((name) => [name.toUpperCase(), name]));
  return text.toUpperCase().replace(LETTERS, (word) => spelled.get(word) ?? word);
}

/** Changes the first letter of a text. */
export function initial({ first }: Pick<SurfaceChange, "first">, text: string): string {
  const offset = text.length - trimStart(text).length;
  return first ? text.slice(0, offset) + first + text.slice(offset + firstOf(text.slice(offset)).length) : text;
}

/** Changes a text. */
export function applied(change: SurfaceChange, text: string): string {
  return capitals(change, initial(change, text.slice(0, change.keep)) + change.added);
}

/** What the surface of a translation is made from. */
export interface SurfaceRules {
  /** Whether the sentence is in capitals. */
  isUpper: boolean;
  /** Whether the first letter and final punctuation are to be those of the source. */
  matches: boolean;
  /** Number of copies of the same words at the end that are too many; 0 allows all. */
  repeats: number;
  /** Whether the model read a period after the sentence. */
  hasAddedPeriod: boolean;
}

/** Decides how to change a translation so that its surface is that of its source. */
export function surfaceChange(source: string, text: string, language: string, rules: SurfaceRules): SurfaceChange {
  const { isUpper, matches, repeats, hasAddedPeriod } = rules;
  let keep = repeats ? withoutRepeats(source, text, repeats) : text.length;
  const names = isUpper ? [...source.matchAll(LETTERS)].map(([word]) => word).filter(isMixed) : [];
  const code = baseCode(language);
  if (!matches || !trim(text)) {
    if (hasAddedPeriod) [keep] = punctuation(source, text.slice(0, keep), code, true);
    return { keep, added: "", isUpper, names, first: "" };
  }
  const [kept, added] = punctuation(source, trimEnd(text.slice(0, keep)), code, hasAddedPeriod);
  keep = trimEnd(text.slice(0, kept)).length;
  return { keep, added, isUpper, names, first: firstLetter(source, text) };
}

/** The number of characters to keep of a text so that it does not end with copies of the same words. */
function withoutRepeats(source: string, text: string, repeats: number): number {
  const whole = COPIES.exec(trim(text))?.[1];
  if (whole && !REPEATED.test(source.replace(python("[\\s,]+", "g"), ""))) return text.indexOf(whole) + whole.length;
  // A copy has at least two characters: numbers, dots and interjections repeat single ones.
  const loop = new RegExp(`(.{2,80}?)\\1{${repeats - 1},}(?<rest>.{0,79})$`, "su");
  const offset = Math.max(0, text.length - SEARCHED);
  const found = loop.exec(text.slice(offset));
  if (!found || loop.test(source.slice(-SEARCHED))) return text.length;
  const copy = found[1]!;
  const rest = found.groups!.rest!.replace(/^[ .!?,;]+|[ .!?,;]+$/g, "");
  if (!hasLetters(copy) || !trim(copy).startsWith(rest)) return text.length;
  return offset + found.index + trimEnd(copy).length;
}

/** How many characters of a translation to keep, and the punctuation to add. */
function punctuation(source: string, text: string, code: string, hasAddedPeriod: boolean): [number, string] {
  const [wanted, found] = [FINAL.exec(source), FINAL.exec(text)];
  const isPeriod = found !== null && firstOf(found[0]) === found[0] && uniform(found[0]) === ".";
  const ellipsis = wanted ? ELLIPSIS.exec(wanted[0])?.[0] : undefined;
  const clause = /[,;:]$/.test(source) && !wanted ? source.slice(-1) : "";
  // As in "hello", which becomes "Hello?"; a sentence may have no space in some scripts.
  const isWord = !SPACE_OR_UNSPACED.test(trim(source));
  const isSurplus = !UNMARKED.test(source) && (isPeriod || isWord || hasAddedPeriod);
  const before = found ? trimEnd(text.slice(0, found.index)).length : text.length;
  if (found && !wanted && isSurplus && !ABBREVIATION.test(text)) return [before, clause];
  if (ellipsis && isPeriod) return [before, ellipsis];
  if (wanted && !found && endsWithWord(text)) {
    const terminator = ellipsis ?? uniform([...wanted[0]][0]!);
    return [text.length, terminatorOf(code, terminator)];
  }
  return [text.length, endsWithWord(text) ? clause : ""];
}

/** The first letter of a translation as a capital if its source begins with one; empty if it stays. A lower-case source
 * says nothing: the first word may be one that the target language capitalizes. */
function firstLetter(source: string, text: string): string {
  const word = [...source.matchAll(LETTERS)][0]?.[0];
  if (word && isMixed(word) && isLower(firstOf(word))) return ""; // "iPhone" begins a sentence as it is
  const [now = "", following = ""] = trimStart(text);
  const isRaised = isUpper(firstOf(trimStart(source))) && isLower(now) && !isUpper(following);
  const raised = now.toUpperCase();
  // Georgian has capitals for whole words only.
  return isRaised && raised === firstOf(raised) && !/\p{Script=Georgian}/u.test(now) ? raised : "";
}
