/** What distinguishes a sentence on its surface only: capitals and final punctuation, and loops of the model. */
import {
  baseCode,
  endsAlphanumeric,
  hasLetters,
  isLower,
  isSpace,
  isUpper,
  python,
  trim,
  trimEnd,
  trimStart,
} from "./patterns.js";

const FINAL = /[.!?。！？…।؟]+["'”’»)\]]*$/u;
const ELLIPSIS = /^(?:\.{3,}|…+)/u;
/** Final punctuation where it differs from that of English. */
const MARKS: Record<string, Record<string, string>> = {
  ar: { "?": "؟" },
  bn: { ".": "।" },
  el: { "?": ";" },
  fa: { "?": "؟" },
  fr: { "?": "\u00a0?", "!": "\u00a0!" },
  hi: { ".": "।" },
  ja: { ".": "。", "?": "？", "!": "！" },
  ur: { ".": "۔", "?": "؟" },
  zh: { ".": "。", "?": "？", "!": "！" },
};
/** Languages in which the first letter depends on the word. */
const NOUNS_IN_CAPITALS = ["de", "deu", "lb", "ltz"];
const UNIFORM: Record<string, string> = { "。": ".", "！": "!", "？": "?", "।": ".", "؟": "?", "۔": "." };
const COPIES = python("^(\\w[^\\n]{0,80}?)(?:[\\s,]+\\1){2,}[.!?,]*$", "i");
const REPEATED = /^(.{1,80}?)\1{2,}[.!?]*$/iu;
const ABBREVIATION = python("(?:\\w\\.\\w?|\\betc|\\bvs|\\bNr|\\bno|\\bSt|\\bMr|\\bDr|\\bCo|\\bInc|\\bLtd)\\.$", "i");
const LETTERS = python("[^\\W\\d_]+", "g");
/** The end of a sentence without final punctuation. */
const ENDS = python("[^\\W_][\"'”’»)\\]]*$");
/** Characters at the end of a text in which copies are searched for. */
const SEARCHED = 2000;
/** Text with fewer letters may be an acronym. */
const MIN_CAPITALS = 6;

/** The period of a language. */
export const period = (language: string): string => MARKS[baseCode(language)]?.["."] ?? ".";
/** Whether a sentence ends with a word or number. */
export const lacksPeriod = (text: string): boolean => ENDS.test(text.slice(-8));

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

/** How a translation is changed: it is cut, and something is added. */
export interface Finish {
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
export function capitals({ isUpper, names }: Finish, text: string): string {
  if (!isUpper) return text;
  const spelled = new Map(names.map((name) => [name.toUpperCase(), name]));
  return text.toUpperCase().replace(LETTERS, (word) => spelled.get(word) ?? word);
}

/** Changes the first letter of a text. */
export function initial({ first }: Pick<Finish, "first">, text: string): string {
  const offset = text.length - trimStart(text).length;
  return first ? text.slice(0, offset) + first + text.slice(offset + firstOf(text.slice(offset)).length) : text;
}

/** Changes a text. */
export function finished(finish: Finish, text: string): string {
  return capitals(finish, initial(finish, text.slice(0, finish.keep)) + finish.added);
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
  isMarked: boolean;
}

/** Decides how to change a translation so that its surface is that of its source. */
export function finish(source: string, text: string, language: string, rules: SurfaceRules): Finish {
  const { isUpper, matches, repeats, isMarked } = rules;
  let keep = repeats ? withoutRepeats(source, text, repeats) : text.length;
  const names = isUpper ? [...source.matchAll(LETTERS)].map(([word]) => word).filter(isMixed) : [];
  const code = baseCode(language);
  if (!matches || !trim(text)) {
    if (isMarked) [keep] = punctuation(source, text.slice(0, keep), code, true);
    return { keep, added: "", isUpper, names, first: "" };
  }
  const [kept, added] = punctuation(source, trimEnd(text.slice(0, keep)), code, isMarked);
  keep = trimEnd(text.slice(0, kept)).length;
  return { keep, added, isUpper, names, first: firstLetter(source, text, code) };
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
function punctuation(source: string, text: string, code: string, isMarked: boolean): [number, string] {
  const [wanted, found] = [FINAL.exec(source), FINAL.exec(text)];
  const isPeriod = found !== null && [".", "。", "।"].includes(found[0]);
  const ellipsis = wanted ? ELLIPSIS.exec(wanted[0])?.[0] : undefined;
  const clause = /[,;:]$/.test(source) ? source.slice(-1) : "";
  const isWord = ![...trim(source)].some(isSpace); // as in "hello", which becomes "Hello?"
  const before = found ? trimEnd(text.slice(0, found.index)).length : text.length;
  if (found && !wanted && (isPeriod || isWord || isMarked) && !ABBREVIATION.test(text)) return [before, clause];
  if (ellipsis && isPeriod) return [before, ellipsis];
  if (wanted && !found && endsAlphanumeric(text)) {
    const first = [...wanted[0]][0]!;
    const mark = ellipsis ?? UNIFORM[first] ?? first;
    return [text.length, MARKS[code]?.[mark] ?? mark];
  }
  return [text.length, endsAlphanumeric(text) ? clause : ""];
}

/** The first letter of a translation in the case of its source's; empty if it is right or depends on the word. */
function firstLetter(source: string, text: string, code: string): string {
  const words = [...source.matchAll(LETTERS)].map(([word]) => word);
  const word = [...text.matchAll(LETTERS)][0]?.[0];
  if (words[0] && isMixed(words[0]) && isLower(firstOf(words[0]))) return ""; // "iPhone" begins a sentence as any place
  const old = firstOf(trimStart(source));
  const [now = "", following = ""] = trimStart(text);
  const single = (letter: string) => (letter === firstOf(letter) ? letter : "");
  if (isUpper(old) && isLower(now) && !isUpper(following)) return single(now.toUpperCase());
  const isCapitalized = isUpper(now) && (isLower(following) || /^['’ ]$/.test(following)) && now !== "I";
  const isName = word !== undefined && (words.includes(word) || isMixed(word));
  if (isLower(old) && isCapitalized && !isName && !NOUNS_IN_CAPITALS.includes(code)) return single(now.toLowerCase());
  return "";
}
