/**
 * From a text to spans of sentences that the model can read. What is between the spans is copied.
 *
 * 1. Each line is divided into sentences, without the markers of lists and quotations before them.
 * 2. Sentences that were divided inside an item, such as a URL, are joined again.
 * 3. A sentence with too many tokens is split into two near its middle, and so are they, until all parts fit.
 *
 * A sentence ends with a sentence terminator of Unicode, unless a small letter or digit follows it directly, or a known
 * abbreviation or initial comes before it, or it is inside parentheses or quotation marks. These are the rules of
 * sentencex, which the Python package uses, with shorter lists of abbreviations.
 */
import { type Item, overlapping, type Span, trimmed } from "./block.js";
import lexicon from "./lexicon.json" with { type: "json" };
import { baseCode, isSpace, python } from "./patterns.js";

// biome-ignore lint/suspicious/noControlCharactersInRegex: separators of information end lines, as in Python
const LINE = /[^\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+/g;
/** What a line of a list, a quotation or a heading begins with. */
const MARKER = python(`^${lexicon.sentences.marker}`);
/** Where a sentence that is too long is split, the best first: after clauses, before conjunctions, at spaces. */
const SPLITS = lexicon.sentences.splits.map((pattern) => python(pattern, "g"));
const TERMINATORS = /[\p{Sentence_Terminal}]+/gu;
/** Parts in which no sentence ends. */
const ENCLOSED = new RegExp(
  [
    /"[^"]*"|(?<!\p{L})'(?=\p{L})[^']*'(?!\p{L})/u, // straight quotation marks, but no apostrophes
    /«[^»]*»|‘[^’]*’|“[^”]*”|„[^“]*“|「[^」]*」|《[^》]*》/u, // other quotation marks
    /[(（<{[][^)\]}>）]*[)\]}>）]/u, // brackets
    /[\w.%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}/u, // e-mail addresses
  ]
    .map(({ source }) => source)
    .join("|"),
  "gu",
);
const QUOTE_END = /["'»’”“」》]$/;
const REFERENCES = python("^(?:\\s*\\[\\d+\\])+");
const SPACES = python("^\\s*");
/** What still belongs to a sentence after its quotation. */
const MORE = python("^[\\s\\p{Sentence_Terminal}]*");
/** What a sentence goes on with directly after a terminator, and what behind a space too: in some languages, and after
 * several terminators and ` !`. */
const GOES_ON = /^[0-9a-z]/;
const GOES_ON_APART = python("^\\W*[0-9\\p{Ll}]");
const MONTHS = python("^\\s*(?:Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\\b");
const APART = ["cs", "da", "de", "fi"];
/** What a sentence begins with even after an abbreviation. */
const STARTERS = python(
  "^\\s*(?:After|All|Also|An|And|As|At|But|For|From|He|Her|Here|His|How|However|If|In|Is|It|Its|My|No|Not|Now|On|One|Or|" +
    "Our|She|So|Some|That|The|Their|Then|There|These|They|This|Those|To|We|What|When|Where|Which|Who|Why|With|You|Your)\\b",
);
const ABBREVIATIONS: Record<string, string> = {
  de: "abb abs abt allg art aufl bd bzgl bzw ca co d.h dgl dipl dr ehem etc evtl exkl fa fr ggf hr hrsg inkl ing jh kap lt max min mio mr mrd mrs nr o.ä phil prof rd s sog st str tel u.a usw v vgl vs z.b zzgl",
  en: "adj adm approx apr assn asst aug ave bldg blvd brig bros capt cf cmdr co col comdr con corp cpl dec dept dist div dr ed eds e.g esp esq est etc feb fig figs fri ft gen gov hon hosp inc insp inst jan jr jul jun lt ltd maj mar messrs mgr misc mlle mm mme mon mr mrs ms msgr mt nov nr oct op ord pfc ph pp prof pvt rep reps res rev rt sen sens sep sept sfc sgt sq sr st sun supt surg tel thu tue univ vol vs wed",
  fr: "adj al art av bd boul c.-à-d cf chap col dept dr ed env etc ex fasc fig hab ibid ill intro janv juil l'abbé lt max min mlle mlles mm mme mmes mr n no nos obs op ouvr p.ex pl pp pr prof réf s sept st ste suiv t tél trad v vol vs",
};
const INITIAL = /^\p{L}$/u;

/** The first half of a character, at the end of a text. */
const HALF = /(?<=.)[\ud800-\udbff]$/s;
/** Longer lines, and those of more sentences, are divided before their sentences are found. */
const MAX_SEGMENTED = 4096;
/** Longer sentences are split without counting their tokens. */
const MAX_COUNTED = 4096;

/** Finds the sentences of a text, without the white space and list markers around them. */
export function sentenceSpans(text: string, language: string): Span[] {
  const spans: Span[] = [];
  for (const line of text.matchAll(LINE)) {
    let start = line.index + (MARKER.exec(line[0])?.[0].length ?? 0);
    const end = line.index + line[0].length;
    while (start < end) {
      const chunk = text.slice(start, Math.min(end, start + MAX_SEGMENTED)).replace(HALF, "");
      const ends = sentenceEnds(chunk, baseCode(language) || "en");
      if (start + chunk.length < end && ends.length > 1) ends.pop();
      let first = 0;
      for (const last of ends) {
        spans.push(...trimmed(text, start + first, start + last));
        first = last;
      }
      start += first;
    }
  }
  return spans;
}

/** Where the sentences of a line end. */
function sentenceEnds(line: string, code: string): number[] {
  const enclosed: Span[] = [...line.matchAll(ENCLOSED)].map((match) => [match.index, match.index + match[0].length]);
  const ends: number[] = [];
  for (const { 0: run, index } of line.matchAll(TERMINATORS)) {
    let end = sentenceEnd(line, run, index, code);
    const around = enclosed.find(([first, last]) => first < end && end < last);
    if (around) {
      // Of a quotation, the last sentence ends the one around it.
      const [first, last] = around;
      const after = line.slice(last);
      const isLast = QUOTE_END.test(line.slice(first, last)) && end + 1 === last;
      end = isLast && !goesOn(after.trimStart(), code) ? last + MORE.exec(after)![0].length : 0;
    }
    if (end > (ends.at(-1) ?? 0)) ends.push(end);
  }
  return ends.at(-1) === line.length ? ends : [...ends, line.length];
}

/** Where the sentence ends that a run of terminators may end; 0 if it does not. */
function sentenceEnd(line: string, run: string, index: number, code: string): number {
  const next = index + String.fromCodePoint(run.codePointAt(0)!).length;
  const after = line.slice(next, next + 30);
  const references = REFERENCES.exec(after)?.[0].length ?? 0;
  if (references) return next + references;
  const isWeak = [...run].length > 1 || (/^[!?]/.test(run) && isSpace(line.slice(0, index).slice(-1)));
  if (goesOn(after, code) || (isWeak && GOES_ON_APART.test(after))) return 0;
  const before = line.slice(Math.max(0, index - 40), index);
  const isBegun = code === "en" && STARTERS.test(after) && !/(?:^|\s)\p{Ll}$/u.test(before);
  if (run === "." && !isBegun && isAbbreviation(before, code)) return 0;
  const spaces = SPACES.exec(after)![0].length;
  return spaces ? next + spaces : index + run.length;
}

function goesOn(after: string, code: string): boolean {
  return (
    GOES_ON.test(after) ||
    (APART.includes(code) && (GOES_ON_APART.test(after) || (code === "de" && MONTHS.test(after))))
  );
}

/** Whether a text ends with an abbreviation, without its period, or an initial. */
function isAbbreviation(before: string, code: string): boolean {
  const known = KNOWN.get(code) ?? KNOWN.get("en")!;
  const [whole] = python("\\S*$").exec(before)!;
  const word = whole.split(".").at(-1)!;
  return (
    word !== "" &&
    ((code !== "fr" && INITIAL.test(word)) || known.has(word.toLowerCase()) || known.has(whole.toLowerCase()))
  );
}

const KNOWN = new Map(Object.entries(ABBREVIATIONS).map(([code, words]) => [code, new Set(words.split(" "))]));

/** Joins sentences that were split in the middle of an item. */
export function joinedSpans(spans: readonly Span[], items: readonly Item[]): Span[] {
  const joined: Span[] = [];
  const isInside = (offset: number) => overlapping(items, offset, offset).length > 0;
  for (const [start, end] of spans) {
    const last = joined.at(-1);
    if (last && (isInside(last[1]) || isInside(start))) joined[joined.length - 1] = [last[0], end];
    else joined.push([start, end]);
  }
  return joined;
}

/**
 * Splits sentences that have too many tokens.
 *
 * @param items parts of the text that are not split.
 * @param limit maximum number of tokens.
 * @param count counts the tokens of a text.
 */
export function fittingSpans(
  text: string,
  spans: readonly Span[],
  items: readonly Item[],
  limit: number,
  count: (text: string) => number,
): Span[] {
  return spans.flatMap(([start, end]) => {
    if (end - start <= MAX_COUNTED && count(text.slice(start, end)) <= limit) return [[start, end]] as Span[];
    const offset = splitOffset(text, start, end, items);
    if (offset === undefined) return [[start, end]] as Span[];
    const halves = [...trimmed(text, start, offset), ...trimmed(text, offset, end)];
    return fittingSpans(text, halves, items, limit, count);
  });
}

/** Where it is best to split a sentence; undefined if it is a single character or item. */
function splitOffset(text: string, start: number, end: number, items: readonly Item[]): number | undefined {
  // The best kind of split that the middle half of the sentence has, as near to its middle as possible.
  const middle = (start + end) >> 1;
  const quarter = (end - start) >> 2;
  for (const pattern of SPLITS) {
    const offsets = [...text.slice(start + quarter, end - quarter).matchAll(pattern)]
      .map((match) => start + quarter + match.index + match[0].length)
      .filter((offset) => start < offset && offset < end && !overlapping(items, offset, offset).length);
    if (offsets.length)
      return offsets.reduce((one, other) => (Math.abs(other - middle) < Math.abs(one - middle) ? other : one));
  }
  // There is no space: before or behind the item in the middle, or else between two characters, as readers see
  // them if possible.
  const [item] = overlapping(items, middle, middle);
  if (item) return [item.start, item.end].find((edge) => start < edge && edge < end);
  const isPart = (offset: number) =>
    /^(?:\p{M}|\u200d|[\udc00-\udfff])/u.test(text.slice(offset, offset + 2)) || text[offset - 1] === "\u200d";
  const isHalf = (offset: number) => /[\udc00-\udfff]/.test(text[offset]!);
  for (const isInside of [isPart, isHalf]) {
    let offset = Math.max(middle, start + 1);
    while (offset < end && isInside(offset)) offset++;
    if (offset < end) return offset;
  }
  return undefined;
}
