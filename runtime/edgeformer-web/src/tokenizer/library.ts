/**
 * Encoding and decoding by a `tokenizer.json`, with the results of the `tokenizers` library for Python. It reads the
 * components that this project writes into bundles: byte-level BPE and unigram, and word level. JavaScript ports of the
 * library have no offsets and no word level, and take digits of other scripts for letters.
 */
import { SchemaProblem } from "../bundle/schema.js";
import type { BPE, Decoders, LibraryFile, PreTokenizers, StripTokens, Unigram } from "../generated.js";
import { BaseTokenizer, type Token } from "./base.js";
import { merged, mostProbable, type Segment } from "./segmentation.js";
import { Trie } from "./trie.js";
import { decodeUtf8, utf16Offsets } from "./utf8.js";

const MAX_ENTRIES = 2 ** 24;
/** How much less than the least probable entry a byte scores that is not an entry. */
const UNKNOWN_PENALTY = 10;

const BYTE_LEVEL = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const IN_WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

/** The character that byte-level models have for each byte: itself if it can be seen, or else one from U+0100 on. */
const BYTE_CHARACTERS = byteCharacters();
const BYTE_OF = new Map([...BYTE_CHARACTERS].map((character, byte) => [character, byte]));

type PreTokenizer = Exclude<LibraryFile["pre_tokenizer"], PreTokenizers | null>;
type Decoder = Exclude<LibraryFile["decoder"], Decoders | null>;
/** Characters of a word in the normalized text. */
type Span = [number, number];
/** Divides a word into entries. */
type Divide = (word: string) => Segment[];

/** Encodes and decodes by a `tokenizer.json`. Immutable. */
export class LibraryTokenizer extends BaseTokenizer {
  protected readonly names: readonly string[];
  protected readonly ids: ReadonlyMap<string, number>;
  private readonly dropped: ReadonlySet<number>;
  private readonly lowercases: boolean;
  private readonly prefix: "always" | "unless spaced" | "never";
  private readonly splits: readonly RegExp[];
  private readonly isByteLevel: boolean;
  private readonly divide: Divide;
  private readonly decoders: readonly Decoder[];

  /**
   * @param file content of the file.
   * @param special names of tokens that no text may be encoded to.
   * @throws SchemaProblem: the file is damaged, or has a component that is not supported.
   */
  constructor({ model, added_tokens: added, ...around }: LibraryFile, special: ReadonlySet<string>) {
    super(special);
    const vocabulary = model.type === "Unigram" ? unigramIds(model.vocab) : new Map(entriesOf(model.vocab));
    for (const { id, content, special } of added) {
      if (!special) throw new SchemaProblem(`the added token \`${content}\` is not a special one`);
      if (!vocabulary.has(content)) vocabulary.set(content, id);
    }
    this.ids = vocabulary;
    this.names = named(vocabulary);
    this.dropped = new Set(added.map(({ content }) => vocabulary.get(content)!));
    const { normalizer, pre_tokenizer: splitter, decoder } = around;
    const normalizers = normalizer?.type === "Sequence" ? normalizer.normalizers : normalizer ? [normalizer] : [];
    const splitters = splitter?.type === "Sequence" ? splitter.pretokenizers : splitter ? [splitter] : [];
    this.lowercases = normalizers.some(({ type }) => type === "Lowercase");
    const spaces = splitters.some((part) => part.type === "ByteLevel" && part.add_prefix_space);
    this.prefix = normalizers.some(({ type }) => type === "Prepend") ? "always" : spaces ? "unless spaced" : "never";
    if (spaces && (splitters.length > 1 || normalizers.length))
      throw new SchemaProblem("it adds spaces before words in a way that is not supported");
    this.splits = splitters.map(pattern);
    this.isByteLevel = splitters.at(-1)?.type === "ByteLevel";
    this.divide = this.divider(model);
    this.decoders = decoder?.type === "Sequence" ? decoder.decoders : decoder ? [decoder] : [];
  }

  protected tokens(text: string): Token[] {
    const { normalized, starts, ends } = this.normalized(text);
    return this.words(normalized).flatMap(([first, last]) => {
      const word = normalized.slice(first, last);
      // Where each byte, or else the whole word, begins and ends in the normalized text.
      const bytes = this.isByteLevel ? new TextEncoder().encode(word) : undefined;
      const offsets = bytes && utf16Offsets(bytes);
      const divided = this.divide(bytes ? Array.from(bytes, (byte) => BYTE_CHARACTERS[byte]).join("") : word);
      return divided.map(({ id, start, end }) => {
        const begin = first + (offsets ? offsets[start]! : 0);
        // A byte inside a character stands for all of it.
        let stop = end;
        while (offsets && bytes && (bytes[stop]! & 0xc0) === 0x80) stop++;
        return { id, start: starts[begin]!, end: ends[(offsets ? first + offsets[stop]! : last) - 1]! };
      });
    });
  }

  protected written(ids: readonly number[]): string {
    let names = ids.filter((id) => !this.dropped.has(id)).map((id) => this.names[id]!);
    if (!this.decoders.length) return names.join(" ");
    for (const part of this.decoders) {
      if (part.type === "Fuse") names = [names.join("")];
      else if (part.type === "ByteLevel") names = [decodeUtf8(Uint8Array.from(names.flatMap(bytesOf)))];
      else names = names.map((name) => stripped(name, part));
    }
    return names.join("");
  }

  /** Normalizes text; each unit of the result has the units of the text that it stands for, and a space that is added
   * those of the first character. */
  private normalized(text: string): { normalized: string; starts: number[]; ends: number[] } {
    const isPrefixed = text && (this.prefix === "always" || (this.prefix !== "never" && !text.startsWith(" ")));
    let normalized = isPrefixed ? " " : "";
    const starts = isPrefixed ? [0] : [];
    const ends = isPrefixed ? [String.fromCodePoint(text.codePointAt(0)!).length] : [];
    let offset = 0;
    for (const character of text) {
      const written = this.lowercases ? character.toLowerCase() : character;
      normalized += written;
      for (let unit = 0; unit < written.length; unit++) {
        starts.push(offset);
        ends.push(offset + character.length);
      }
      offset += character.length;
    }
    return { normalized, starts, ends };
  }

  /** The words of normalized text: every match of a pattern, and what is between matches. */
  private words(text: string): Span[] {
    let words: Span[] = text ? [[0, text.length]] : [];
    for (const split of this.splits) {
      const isRemoved = split.source === WHITE_SPACE.source;
      words = words.flatMap(([first, last]) => {
        const parts: Span[] = [];
        let offset = first;
        const add = (end: number) => {
          if (offset < end) parts.push([offset, end]);
          offset = end;
        };
        for (const match of text.slice(first, last).matchAll(split)) {
          add(first + match.index);
          if (isRemoved) offset += match[0].length;
          else add(first + match.index + match[0].length);
        }
        add(last);
        return parts;
      });
    }
    return words;
  }

  private divider(model: LibraryFile["model"]): Divide {
    if (model.type === "WordLevel") {
      const unknown = this.ids.get(model.unk_token);
      if (unknown === undefined || this.isByteLevel) throw new SchemaProblem("it has no unknown token");
      return (word) => {
        const id = this.special.has(word) ? undefined : this.ids.get(word);
        return [{ id: id ?? unknown, start: 0, end: word.length }];
      };
    }
    const isComplete = [...BYTE_CHARACTERS].every((character) => this.ids.has(character));
    if (!this.isByteLevel || !isComplete) throw new SchemaProblem("it is not a byte-level one");
    return model.type === "BPE" ? byPairs(model, this.ids) : byScores(model);
  }
}

const WHITE_SPACE = /\p{White_Space}+/gu;

/** What a component splits words by. */
function pattern(part: PreTokenizer): RegExp {
  if (part.type === "WhitespaceSplit") return WHITE_SPACE;
  if (part.type === "ByteLevel") return part.use_regex ? inJavaScript(BYTE_LEVEL) : /[\s\S]+/gu;
  if (part.type === "Split" && !part.invert) return inJavaScript(part.pattern.Regex);
  if (part.type === "Digits" && part.individual_digits) return /\p{N}/gu;
  throw new SchemaProblem("it splits text in an unknown way");
}

/** A pattern of the library: its classes are those of Unicode, and those outside brackets have a few characters more. */
function inJavaScript(pattern: string): RegExp {
  const space = "\\p{White_Space}";
  const source = pattern.replace(/\[[^\]]+\]|\\[wsS]/g, (part) => {
    if (part === "\\S") return "\\P{White_Space}";
    if (part === "\\w") return `[${IN_WORD}\\u00b2\\u00b3\\u00b9\\u00bc-\\u00be]`;
    return part.replace("\\w", IN_WORD).replace("\\s", space);
  });
  return new RegExp(source, "gu");
}

/** Byte pair encoding: merges the pairs of the file, the first of them first. */
function byPairs({ merges, byte_fallback, ignore_merges }: BPE, ids: ReadonlyMap<string, number>): Divide {
  if (byte_fallback || ignore_merges) throw new SchemaProblem("it is a kind of BPE that is not supported");
  if (!Array.isArray(merges)) throw new SchemaProblem("its merges are damaged");
  const found = new Map<number, { id: number; rank: number }>();
  const keyOf = (left: number, right: number) => left * MAX_ENTRIES + right;
  merges.forEach((pair: unknown, rank) => {
    const [left, right, ...rest] = typeof pair === "string" ? pair.split(" ") : Array.isArray(pair) ? pair : [];
    const [one, other, id] = [left, right, `${left}${right}`].map((entry) => ids.get(entry));
    if (one === undefined || other === undefined || id === undefined || rest.length)
      throw new SchemaProblem(`its merge ${rank + 1} does not fit its vocabulary`);
    found.set(keyOf(one, other), { id, rank });
  });
  return (word) => {
    const bytes = [...word].map((character, start) => ({ id: ids.get(character)!, start, end: start + 1 }));
    return merged(bytes, (left, right) => found.get(keyOf(left.id, right.id)));
  };
}

/** A unigram model: the entries whose scores have the largest sum. */
function byScores(model: Unigram): Divide {
  const entries = model.vocab as unknown as [string, number][];
  const trie = new Trie();
  let least = Number.POSITIVE_INFINITY;
  entries.forEach(([name, score], id) => {
    trie.add(new TextEncoder().encode(name), id);
    least = Math.min(least, score);
  });
  const pieces = {
    trie,
    score: (id: number) => entries[id]![1],
    unknown: model.unk_id,
    unknownScore: least - UNKNOWN_PENALTY,
    round: (sum: number) => sum,
  };
  return (word) => {
    const bytes = new TextEncoder().encode(word);
    const offsets = utf16Offsets(bytes);
    const at = ({ id, start, end }: Segment) => ({ id, start: offsets[start]!, end: offsets[end]! });
    return mostProbable(bytes, pieces).map(at);
  };
}

function unigramIds(vocabulary: unknown): Map<string, number> {
  const isEntry = (entry: unknown) => Array.isArray(entry) && typeof entry[0] === "string" && Number.isFinite(entry[1]);
  if (!Array.isArray(vocabulary) || !vocabulary.every(isEntry)) throw new SchemaProblem("its entries are damaged");
  return new Map(vocabulary.map(([name], id) => [name, id]));
}

function entriesOf(vocabulary: unknown): [string, number][] {
  if (typeof vocabulary !== "object" || vocabulary === null) throw new SchemaProblem("its vocabulary is damaged");
  return Object.entries(vocabulary) as [string, number][];
}

/** The entries by their ids, which are the numbers below their number. */
function named(ids: ReadonlyMap<string, number>): string[] {
  const names: string[] = [];
  for (const [name, id] of ids) if (Number.isInteger(id) && id >= 0 && id < ids.size) names[id] = name;
  if (ids.size > MAX_ENTRIES || Object.keys(names).length < ids.size)
    throw new SchemaProblem("ids are missing or duplicated");
  return names;
}

/** The bytes that the characters of an entry stand for, or those of the text if one of them stands for none. */
function bytesOf(name: string): number[] {
  const bytes = Array.from(name, (character) => BYTE_OF.get(character) ?? -1);
  return bytes.includes(-1) ? [...new TextEncoder().encode(name)] : bytes;
}

/** Removes up to `start` characters at the beginning and `stop` at the end. */
function stripped(name: string, { content, start, stop }: StripTokens): string {
  let [first, last] = [0, name.length];
  while (first < start && name[first] === content) first++;
  while (name.length - last < stop && last > first && name[last - 1] === content) last--;
  return name.slice(first, last);
}

function byteCharacters(): string {
  let next = 0x100;
  const isShown = (byte: number) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isShown(byte) ? byte : next++)).join("");
}
