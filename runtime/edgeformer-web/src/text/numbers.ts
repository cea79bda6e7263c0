/**
 * Whether a translation has the numbers of its sentence, and how its language writes them.
 *
 * Digits side by side are a group; groups of thousands are one, whatever is between them. What else is between groups is
 * the language's affair, as is their order. Words, Roman numerals, the hour of the other clock and the like may stand for
 * a group. A translation has the numbers of its source if each side has every group of the other as often, or what may
 * stand for it.
 */
import { type AlignedSentence, endsOf, putOver, round, sharesOf } from "./alignment.js";
import { type Block, type Item, type Span, withoutItems, written } from "./block.js";
import lexicon from "./lexicon.json" with { type: "json" };
import { baseCode, escaped, python } from "./patterns.js";

type Counts = ReadonlyMap<string, number>;
/** Language codes of source and target. */
export type Languages = readonly [string, string];

/** Groups of digits that a translation lacks, and those that it has beyond its source's. */
export interface NumberDifferences {
  missing: Counts;
  surplus: Counts;
  /** Number of both. */
  count: number;
}

const SPACE = lexicon.numbers.space;
/** Separators of thousands and of decimals by language, from Unicode's CLDR. */
const FORMATS = new Map(
  lexicon.numbers.formats.flatMap(([group, decimal, codes]) =>
    codes!.split(" ").map((code) => [code, [group!, decimal!] as const]),
  ),
);
/** Numbers from 0 on that style guides write in words, cardinal and ordinal. */
const VALUES = new Map(
  Object.entries(lexicon.numbers.words).map(([code, words]) => [
    code,
    new Map(words.split(" ").flatMap((forms, value) => forms.split(",").map((form) => [form, String(value)] as const))),
  ]),
);
const CJK = new Map([..."〇一二三四五六七八九十"].map((numeral, value) => [numeral, String(value)]));
const TIME = python(lexicon.numbers.time, "g");
const { clock: CLOCK, phone: PHONE, plain: PLAIN } = lexicon.numbers;
/** A number as it is written, in languages that do not separate thousands with spaces, and in those that do. */
const NUMBER = ["", "| (?=\\d{3}(?!\\d))"].map((more) => python(`${CLOCK}|${PHONE}(?![,\\d])|${PLAIN}${more})*`, "g"));
const THOUSANDS = [SPACE, `${SPACE} `].map((space) => python(lexicon.numbers.thousands.replace("{space}", space), "g"));
const FULL_HOUR = python(lexicon.numbers.full_hour, "g");
const AREA = python(lexicon.numbers.area, "g");
const MONTH = python(lexicon.numbers.month, "g");
const MYRIADS = python(lexicon.numbers.myriads);
const DECADE = python(lexicon.numbers.decade, "g");
const WORD = python("[^\\W\\d_]+(?:-[^\\W\\d_]+)*", "g");
const ROMAN = python(lexicon.numbers.roman, "g");
const BEFORE_AMOUNT = python(lexicon.numbers.before_amount);
const AFTER_AMOUNT = python(`^${lexicon.numbers.after_amount}`);
const ORDINAL = python(`^${lexicon.numbers.ordinal}$`);
/** What follows the digits of an ordinal number above 1. */
const ORDINALS: Record<string, string> = lexicon.numbers.ordinals;

/** Text with the digits of ASCII in place of those of other scripts, but for those of two UTF-16 units. */
function asciiDigits(text: string): string {
  return text.replace(/[\u0660-\uff19]/g, (digit) => {
    if (!/\p{Nd}/u.test(digit)) return digit;
    let zero = digit.charCodeAt(0);
    while (/\p{Nd}/u.test(String.fromCharCode(zero - 1))) zero--;
    return String((digit.charCodeAt(0) - zero) % 10);
  });
}

/** Whether a language separates thousands with spaces, or is not known, as an index. */
const hasSpaces = (language: string): 0 | 1 =>
  ` ${SPACE}`.includes(FORMATS.get(baseCode(language))?.[0] ?? " ") ? 1 : 0;

/** The numbers of a text. */
function numbers(text: string, language: string): { start: number; end: number; groups: Counts }[] {
  return [...asciiDigits(text).matchAll(NUMBER[hasSpaces(language)]!)].map((match) => ({
    start: match.index,
    end: match.index + match[0].length,
    groups: groupsOf(match[0], language, true),
  }));
}

/** Compares the numbers of a sentence with those of its translation. A sentence without digits has none. */
export function differences(source: string, target: string, languages: Languages): NumberDifferences {
  const none: NumberDifferences = { missing: new Map(), surplus: new Map(), count: 0 };
  if (!/\p{Nd}/u.test(source)) return none;
  const [own, other] = [asciiDigits(source), asciiDigits(target)];
  if (MYRIADS.test(own) !== MYRIADS.test(other)) return none; // 1.5 million is 150万
  const [mine, theirs] = [standIns(own, languages[0]), standIns(other, languages[1])];
  const found = [true, false].map((isJoined) => {
    const [first, second] = [groupsOf(own, languages[0], isJoined), groupsOf(other, languages[1], isJoined)];
    const missing = minus(minus(first, second), minus(theirs, mine));
    const surplus = minus(minus(second, first), minus(mine, theirs));
    return { missing, surplus, count: total(missing) + total(surplus) };
  });
  return found[1]!.count < found[0]!.count ? found[1]! : found[0]!;
}

/** The groups of digits that the other side must have. */
function groupsOf(text: string, language: string, isJoined: boolean): Counts {
  let plain = text.replace(MONTH, "").replace(AREA, "$1").replace(FULL_HOUR, "$1");
  if (isJoined) plain = plain.replace(THOUSANDS[hasSpaces(language)]!, (number) => number.replace(/\D/g, ""));
  return counted((plain.match(/\d+/g) ?? []).map((group) => (/^0\d$/.test(group) ? group.slice(1) : group)));
}

/** The groups of digits that other spellings in a text may stand for. */
function standIns(text: string, language: string): Counts {
  const code = baseCode(language);
  const values = VALUES.get(code);
  const found: string[] = [];
  for (const [word] of text.toLowerCase().matchAll(WORD)) {
    const value = values?.get(word) ?? values?.get(word.slice(0, -1)); // without the ending of a plural
    if (value !== undefined) found.push(value);
  }
  for (const [numeral] of text.matchAll(ROMAN)) found.push(String(roman(numeral)));
  for (const character of text.match(/[\p{No}\p{Nl}\u4e00-\u9fff]/gu) ?? []) {
    const plain = character.normalize("NFKC");
    const digits = plain.match(/\d+/g) ?? [CJK.get(character) ?? (/^[IVX]+$/i.test(plain) ? String(roman(plain)) : "")];
    found.push(...digits.filter(Boolean));
  }
  for (const { groups } of text.matchAll(TIME)) {
    const hour = Number(groups!.hour);
    if (groups!.half) found.push(String((hour % 12) + (groups!.half === "p" ? 12 : 0)));
    else if (hour > 12 && hour <= 24) found.push(String(hour - 12));
    else if (!hour) found.push("12");
  }
  for (const [month] of text.matchAll(MONTH)) found.push(month.replace(/^0+/, ""));
  for (const [, long, short] of text.matchAll(DECADE)) {
    const decade = (long || short)!;
    found.push(...(decade.length > 2 ? [decade.slice(-2)] : [`19${decade}`, `20${decade}`]));
  }
  return counted(found);
}

function roman(numeral: string): number {
  const figures = [...numeral.toUpperCase()].map((letter) => ({ I: 1, V: 5, X: 10 })[letter] ?? 0);
  return figures.reduce((sum, one, index) => sum + (one < (figures[index + 1] ?? 0) ? -one : one), 0);
}

function counted(values: readonly string[]): Counts {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}

/** What one has beyond the other. */
function minus(one: Counts, other: Counts): Counts {
  const left = [...one].map(([value, count]) => [value, count - (other.get(value) ?? 0)] as const);
  return new Map(left.filter(([, count]) => count > 0));
}

const total = (counts: Counts): number => [...counts.values()].reduce((one, other) => one + other, 0);
const hasAny = (groups: Counts, wanted: Counts): boolean => [...groups.keys()].some((group) => wanted.has(group));

/**
 * Makes items of numbers of a sentence, written as the target language does.
 *
 * @param taken items that the sentence has already.
 * @param wrong items are made of the numbers that have one of these groups, or of all if none has.
 * @param withSign whether the sign of a currency or unit beside a number belongs to the item.
 */
export function numberItems(
  block: Block,
  span: Span,
  taken: readonly Item[],
  { missing, surplus }: NumberDifferences,
  languages: Languages,
  withSign: boolean,
): Item[] {
  const text = withoutItems(block.text, span, taken);
  const all = numbers(text, languages[0]);
  const wrong = missing.size ? missing : surplus;
  const chosen = all.filter(({ groups }) => hasAny(groups, wrong));
  return (chosen.length ? chosen : all).map(({ start, end }) => {
    const before = BEFORE_AMOUNT.exec(text.slice(0, start))?.[0].length ?? 0;
    const after = AFTER_AMOUNT.exec(text.slice(end))?.[0].length ?? 0;
    const [first, last] = withSign ? [start - before, end + after] : [start, end];
    const own = adapted(text.slice(start, end), languages, before + after > 0);
    const shown = text.slice(first, start) + own + text.slice(end, last);
    const [from, to] = [span[0] + first, span[0] + last];
    return {
      start: from,
      end: to,
      text: shown,
      raw: shown === text.slice(first, last) ? written(block, from, to) : [shown],
    };
  });
}

/** Puts numbers in place of those that a translation has instead; undefined if it is not certain which stands for
 * which: each must attend most to another one. */
export function corrected(
  sentence: AlignedSentence,
  lacked: readonly Item[],
  { surplus }: NumberDifferences,
  taken: readonly Item[],
  language: string,
): AlignedSentence | undefined {
  const spans = numbers(targetWithout(sentence, taken), language).filter(({ groups }) => hasAny(groups, surplus));
  if (!lacked.length || lacked.length !== spans.length) return undefined;
  const ends = endsOf(sentence);
  const attention = lacked.map((item) => sharesOf(sentence, item.start, item.end).map(round));
  const paired = new Map<Item, Span>();
  for (const { start, end } of spans) {
    const word = ends.findIndex((offset) => offset > start);
    const shares = attention.map((row) => row[word]!);
    paired.set(lacked[shares.indexOf(Math.max(...shares))]!, [start, end]);
  }
  if (paired.size !== lacked.length) return undefined;
  const ordered = [...paired].sort(([, one], [, other]) => other[0] - one[0]);
  return ordered.reduce((put, [item, span]) => putOver(put, item, span), sentence);
}

/** The text of a translation, with spaces in place of items. */
export function targetWithout({ words }: AlignedSentence, items: readonly Item[]): string {
  const texts = new Set(items.map(({ text }) => text.toLowerCase()));
  const isItem = (text: string) => texts.has(text.toLowerCase());
  return words.map(({ space, text, item }) => space + (item && isItem(text) ? " ".repeat(text.length) : text)).join("");
}

/** Writes a number as the target language does, as far as its meaning is certain. */
function adapted(number: string, languages: Languages, isAmount: boolean): string {
  const text = asciiDigits(number);
  const [own, other] = languages.map(baseCode) as [string, string];
  if (own === other) return text;
  const time = [...text.matchAll(TIME)].find((match) => match[0] === text)?.groups;
  if (time && (time.half || text.includes("h"))) return clock(time, text, other);
  const ordinal = ORDINAL.exec(text)?.[1];
  if (ordinal) return ordinal + ordinalEnd(ordinal, other);
  const [from, to] = [FORMATS.get(own), FORMATS.get(other)];
  if (!from || !to) return text;
  const groups = SPACE.includes(from[0]) ? `[ ${SPACE}]` : escaped(from[0]);
  const pattern = new RegExp(`^([-−+]?)(\\d{1,3}(?:${groups}\\d{3})+|\\d+)(?:${escaped(from[1])}(\\d+))?$`, "u");
  const [, sign, integer, decimals] = pattern.exec(text) ?? [];
  if (integer === undefined) return text;
  const isGrouped = /\D/.test(integer);
  if (decimals && from[1] === "." && !isGrouped && !isAmount) return text; // perhaps a version or a chapter
  return sign + integer.replace(/\D/g, to[0]) + (decimals ? to[1] + decimals : "");
}

function clock({ hour, minute, half }: Record<string, string | undefined>, text: string, language: string): string {
  if (language === "en" && half) return text;
  const hours = half ? (Number(hour) % 12) + (half === "p" ? 12 : 0) : Number(hour);
  if (language === "fr") return `${hours}\u00a0h${minute ? `\u00a0${minute}` : ""}`;
  return `${hours}:${minute ?? "00"}`;
}

/** What makes digits an ordinal number; nothing where that is not known. */
function ordinalEnd(digits: string, language: string): string {
  if (language !== "en") return language === "fr" && digits === "1" ? "er" : (ORDINALS[language] ?? "");
  const last = [11, 12, 13].includes(Number(digits) % 100) ? 0 : Number(digits) % 10;
  return ({ 1: "st", 2: "nd", 3: "rd" } as Record<number, string>)[last] ?? "th";
}
