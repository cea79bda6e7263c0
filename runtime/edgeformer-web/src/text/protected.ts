/** What is not translated: URLs, addresses, mentions, hashtags, placeholders, emoji, and text without words. */
import { type Block, type Item, overlapping, type Span, withoutItems } from "./block.js";
import lexicon from "./lexicon.json" with { type: "json" };
import { hasLetters, python } from "./patterns.js";

const { patterns, emoji, emoji_parts, sentence_end: SENTENCE_END } = lexicon.protected;
const PATTERNS = patterns.map(({ example, pattern }) =>
  example.startsWith("{n, plural") ? `(?<choice>${pattern})` : pattern,
);
PATTERNS.push(`[${emoji}][${emoji}${emoji_parts}]*`);
const PROTECTED = python(PATTERNS.join("|"), "g");
const CLOSED: Record<string, string> = { ")": "(", "]": "[", "}": "{" };
/** Most signs between items that belong together. */
const MAX_SIGNS = 3;
/** Braces inside braces, and characters, of a choice. */
const MAX_DEPTH = 9;
const MAX_CHOICE = 10_000;

/** What is not translated inside the sentences of a block, outside the items that it has already. It is neither begun in
 * one element nor ended in another. */
export function protectedItems(block: Block): Item[] {
  const edges = new Set([0, block.text.length]);
  for (const tag of block.tags) if (tag.partner !== undefined) edges.add(tag.offset);
  for (const item of block.items) edges.add(item.start).add(item.end);
  const ordered = [...edges].sort((one, other) => one - other);
  return ordered.slice(1).flatMap((last, index) => {
    const first = ordered[index]!;
    if (overlapping(block.items, first, last).length) return [];
    return protectedSpans(block.text, first, last).map(([start, end]) => item(block, start, end));
  });
}

function item(block: Block, start: number, end: number): Item {
  const text = block.text.slice(start, end);
  return { start, end, text, raw: [text] };
}

/** What is not translated in some characters of a text. */
function protectedSpans(text: string, first: number, last: number): Span[] {
  const spans: Span[] = [];
  const searched = text.slice(0, last);
  PROTECTED.lastIndex = first;
  for (let match = PROTECTED.exec(searched); match; match = PROTECTED.exec(searched)) {
    const start = match.index;
    let end = start + match[0].length;
    if (match.groups?.choice) end = closingBrace(searched, start);
    else if (match[0].includes("://") || match[0].startsWith("www.")) end -= unlinked(match[0]);
    if (end > start) spans.push([start, end]);
    PROTECTED.lastIndex = end > start ? end : start + 1;
  }
  return spans;
}

/** Where the braces end that begin at an offset; the offset itself if they do not end. */
function closingBrace(text: string, start: number): number {
  let depth = 0;
  for (let offset = start; offset < Math.min(text.length, start + MAX_CHOICE); offset++) {
    if (text[offset] === "{") depth++;
    if (text[offset] === "}") depth--;
    if (depth > MAX_DEPTH) break;
    if (!depth) return offset + 1;
  }
  return start;
}

/** The number of punctuation marks after a URL; a parenthesis or the like that closes one of the URL belongs to it. */
function unlinked(url: string): number {
  const count = (sign: string) => url.split(sign).length - 1;
  const surplus = new Map(Object.entries(CLOSED).map(([close, begin]) => [close, count(close) - count(begin)]));
  let kept = url.length;
  for (; kept > 1 && SENTENCE_END.includes(url[kept - 1]!); kept--) {
    const left = surplus.get(url[kept - 1]!);
    if (left === undefined) continue;
    if (left <= 0) break;
    surplus.set(url[kept - 1]!, left - 1);
  }
  return url.length - kept;
}

/** Ordered items, those with nothing but signs between them as one, such as `{a}/{b}`. */
export function joinedItems(block: Block, items: readonly Item[]): Item[] {
  const joined: Item[] = [];
  for (const next of items) {
    const last = joined.at(-1);
    const between = last ? block.text.slice(last.end, next.start) : "";
    const hasTags = block.tags.some(({ offset }) => last && last.end <= offset && offset <= next.start);
    if (last && between.length <= MAX_SIGNS && !hasTags && !python("[\\w\\s]").test(between)) {
      const text = block.text.slice(last.start, next.end);
      joined[joined.length - 1] = { start: last.start, end: next.end, text, raw: [...last.raw, between, ...next.raw] };
    } else joined.push(next);
  }
  return joined;
}

/** Whether part of a text has a letter outside protected items. */
export function hasWords(text: string, span: Span, items: readonly Item[]): boolean {
  return hasLetters(withoutItems(text, span, items));
}
