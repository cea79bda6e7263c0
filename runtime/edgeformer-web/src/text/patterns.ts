/** Python's character classes, by which both implementations read text in the same way. */
import lexicon from "./lexicon.json" with { type: "json" };

const WORD_CLASS = "\\p{L}\\p{N}_";
const SPACE_CLASS = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const IN_CLASS: Record<string, string> = { w: WORD_CLASS, d: "\\p{Nd}", s: SPACE_CLASS };
const ALONE: Record<string, string> = {
  w: `[${WORD_CLASS}]`,
  W: `[^${WORD_CLASS}]`,
  d: "\\p{Nd}",
  s: `[${SPACE_CLASS}]`,
  S: `[^${SPACE_CLASS}]`,
  b: `(?:(?<=[${WORD_CLASS}])(?![${WORD_CLASS}])|(?<![${WORD_CLASS}])(?=[${WORD_CLASS}]))`,
};
/** Negated classes of what is not a letter. */
const LETTERS: Record<string, string> = {
  "[^\\W\\d_]": "[\\p{L}\\p{Nl}\\p{No}]",
  "[^\\W_]": "[\\p{L}\\p{N}]",
  "[^\\W\\d]": "[\\p{L}\\p{Nl}\\p{No}_]",
};

/** A regular expression whose `\w`, `\d`, `\s` and `\b` are those of Python. */
export function python(source: string, flags = ""): RegExp {
  const translated = source.replaceAll("(?P<", "(?<").replace(/\[(?:\\.|[^\]\\])*\]|\\([wWdsSb])/g, (part, alone) => {
    if (alone) return ALONE[alone]!;
    return LETTERS[part] ?? part.replace(/\\([wds])/g, (_, name) => IN_CLASS[name]!);
  });
  return new RegExp(translated, `u${flags}`);
}

/** Scripts whose words have no space between them. */
export const UNSPACED = lexicon.scripts.unspaced;
/** A letter or digit of a script whose words have spaces between them. */
export const LETTER = `(?![${UNSPACED}])\\w`;
const LETTER_FIRST = python(`^${LETTER}`);
const LETTER_LAST = python(`${LETTER}$`);
const BLANK = python("^\\s*$");
const SPACES_BEFORE = python("^\\s+");
const SPACES_AFTER = python("\\s+$");

export const startsWithLetter = (text: string): boolean => LETTER_FIRST.test(text);
export const endsWithLetter = (text: string): boolean => LETTER_LAST.test(text);
export const isBlank = (text: string): boolean => BLANK.test(text);
/** Whether a text is white space, and not empty. */
export const isSpace = (text: string): boolean => text !== "" && BLANK.test(text);
export const trimStart = (text: string): string => text.replace(SPACES_BEFORE, "");
export const trimEnd = (text: string): string => text.replace(SPACES_AFTER, "");
export const trim = (text: string): string => trimStart(trimEnd(text));
/** Whether the first character is a letter or digit. */
export const startsAlphanumeric = (text: string): boolean => /^[\p{L}\p{N}]/u.test(text);
export const endsAlphanumeric = (text: string): boolean => /[\p{L}\p{N}]$/u.test(text);
export const hasLetters = (text: string): boolean => /\p{L}/u.test(text);
export const isUpper = (text: string): boolean => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text);
export const isLower = (text: string): boolean => /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text);
/** The language of a code without script and region, in two letters if it has such: `hi` for `hin_Deva`. */
export const baseCode = (language: string): string =>
  language.split(/[-_]/)[0]!.replace(/^[a-z]{3}$/i, (code) => new Intl.Locale(code).language);
/** Text as a regular expression that matches it. */
export const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
