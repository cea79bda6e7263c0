/** Encoding and decoding by a SentencePiece model, unigram or BPE, as its own library does. */
import { SchemaProblem } from "../bundle/schema.js";
import { Normalizer } from "./normalizer.js";
import { type Merge, merged, mostProbable, type Pieces, type Segment } from "./segmentation.js";
import { SegmentingTokenizer, type Token } from "./segmenter.js";
import { Kind, readSentencePiece, type SentencePieceFile } from "./sentencepiece_file.js";
import { Trie } from "./trie.js";
import { characterLength, decodeUtf8, utf16Offsets } from "./utf8.js";

/** Stands for a space in pieces. */
const SPACE = "\u2581";
/** Put before text that is not to be taken for a piece when decoding; Unicode guarantees that no text has it. */
const AS_IT_IS = "\uffff";
/** How much less than the least probable piece a character scores that no piece has. */
const UNKNOWN_PENALTY = 10;
/** The largest number in float32. */
const MAX_FLOAT = 3.4028234663852886e38;

/**
 * Encodes and decodes by a SentencePiece model.
 *
 * Ids are those of the pieces, or those of the file's own vocabulary. The second case is how Marian, CTranslate2 and
 * Hugging Face use SentencePiece: it divides text into pieces, each of which is then looked up in the vocabulary.
 */
export class SentencePiece extends SegmentingTokenizer {
  private readonly file: SentencePieceFile;
  protected readonly names: readonly string[];
  protected readonly ids: ReadonlyMap<string, number>;
  /** The number of each piece. */
  private readonly numbers: ReadonlyMap<string, number>;
  /** Entries that text may become: those that are neither special nor control pieces. */
  private readonly matched: ReadonlyMap<string, number>;
  private readonly unknown: number;
  private readonly symbols = new Trie();
  private readonly pieces = new Trie();
  private readonly normalizer: Normalizer;
  private readonly denormalizer: Normalizer | undefined;
  private readonly probable: Pieces;

  /**
   * @param data content of the file.
   * @param special names of tokens that no text may be encoded to.
   * @param unk name of the unknown token.
   * @throws SchemaProblem: the file is damaged, or text could be encoded to a special token.
   */
  constructor(
    data: Uint8Array,
    special: ReadonlySet<string>,
    private readonly unk: string,
  ) {
    super(special);
    const file = readSentencePiece(data);
    const { kinds, normalizer, denormalizer } = file;
    this.file = file;
    this.names = file.vocabulary ?? file.pieces;
    this.ids = new Map(this.names.map((name, id) => [name, id]));
    this.numbers = new Map(file.pieces.map((piece, number) => [piece, number]));
    this.unknown = kinds.indexOf(Kind.UNKNOWN);
    let hasSymbols = false;
    file.bytes.forEach((piece, number) => {
      const kind = kinds[number]!;
      if (kind === Kind.NORMAL || kind === Kind.USER_DEFINED || kind === Kind.UNUSED) this.pieces.add(piece, number);
      if (kind === Kind.USER_DEFINED) this.symbols.add(piece, number);
      hasSymbols ||= kind === Kind.USER_DEFINED;
      if (kind === Kind.UNUSED && file.isBpe) throw new SchemaProblem("it has unused pieces");
    });
    this.normalizer = new Normalizer(normalizer, file.treatWhitespaceAsSuffix, hasSymbols ? this.symbols : undefined);
    this.denormalizer = denormalizer.charsmap.length ? new Normalizer(denormalizer, false) : undefined;
    this.probable = this.scored();
    this.matched = new Map([...this.ids].filter(([name]) => !special.has(name) && !this.isControl(name)));
    for (const name of special)
      if (!file.vocabulary && name !== unk && this.ids.has(name) && !this.isControl(name))
        throw new SchemaProblem("a special token is not a control piece");
  }

  protected tokens(text: string): Token[] {
    const encoded = new TextEncoder().encode(text);
    const { bytes, origins } = this.normalizer.normalize(encoded);
    const units = utf16Offsets(encoded);
    const at = (offset: number) => units[origins[offset]!]!;
    const tokens: Token[] = [];
    for (const { id, start, end } of this.joined(this.divided(bytes))) {
      const token = (number: number, first: number) => ({ id: number, start: at(first), end: at(end) });
      if (id === this.unknown && this.file.hasByteFallback) {
        // The last byte stands for the character, and those before it for nothing.
        for (let offset = start; offset < end - 1; offset++)
          tokens.push({ id: this.entry(byteName(bytes[offset]!)), start: at(start), end: at(start) });
        tokens.push(token(this.entry(byteName(bytes[end - 1]!)), start));
      } else {
        const name = id === this.unknown ? decodeUtf8(bytes.subarray(start, end)) : this.file.pieces[id]!;
        tokens.push(token(this.file.vocabulary ? this.entry(name) : id, start));
      }
    }
    return tokens;
  }

  protected written(ids: readonly number[]): string {
    const names = ids.map((id) => this.decoded(id));
    const text = this.text(names);
    if (!names.some((name) => name.startsWith(AS_IT_IS))) return text;
    const first = `${AS_IT_IS} `; // no space before the first word
    return (text.startsWith(first) ? text.slice(first.length) : text).replaceAll(AS_IT_IS, "");
  }

  /** The name that an id is decoded as: that of a piece, or else a text. */
  private decoded(id: number): string {
    const name = this.names[id]!;
    const isPiece = this.numberOf(name) !== this.unknown || !this.file.vocabulary || name === this.unk;
    return isPiece ? name : AS_IT_IS + name.replaceAll(SPACE, " ");
  }

  /** Joins pieces; those that the model does not have are text. */
  private text(names: readonly string[]): string {
    const { normalizer, kinds, unkSurface, pieces } = this.file;
    const drops = normalizer.addDummyPrefix || normalizer.removeExtraWhitespaces;
    let text = "";
    let bytes: number[] = [];
    let isFirst = true;
    let wasDropped = false;
    const flush = () => {
      text += characters(bytes);
      bytes = [];
    };
    for (const name of names) {
      const number = this.numberOf(name);
      if (kinds[number] === Kind.BYTE) {
        bytes.push(Number.parseInt(name.slice(3, 5), 16));
        continue;
      }
      flush();
      isFirst &&= !wasDropped && !text;
      wasDropped = false;
      if (kinds[number] === Kind.CONTROL) continue;
      if (number === this.unknown) text += pieces[number] === name ? unkSurface : name;
      else if (isFirst && drops && name.startsWith(SPACE)) {
        wasDropped = !normalizer.removeExtraWhitespaces;
        text += name.slice(SPACE.length).replaceAll(SPACE, " ");
      } else text += name.replaceAll(SPACE, " ");
    }
    flush();
    return this.denormalizer ? decodeUtf8(this.denormalizer.normalize(new TextEncoder().encode(text)).bytes) : text;
  }

  /** The scores of a unigram model, in float32 as the library adds them. A symbol costs nothing. */
  private scored(): Pieces {
    const { kinds, scores } = this.file;
    const normal = scores.filter((_, number) => kinds[number] === Kind.NORMAL);
    const least = normal.reduce((one, other) => Math.min(one, other), MAX_FLOAT);
    const score = (number: number) => {
      if (kinds[number] === Kind.UNUSED) return Number.NaN;
      return kinds[number] === Kind.USER_DEFINED ? 0 : scores[number]!;
    };
    const unknownScore = Math.fround(least - UNKNOWN_PENALTY);
    return { trie: this.pieces, score, unknown: this.unknown, unknownScore, round: Math.fround };
  }

  /** Divides normalized text into pieces, and characters that no piece has. */
  private divided(text: Uint8Array): Segment[] {
    if (!this.file.isBpe) return mostProbable(text, this.probable);
    const segments: Segment[] = [];
    const frozen = new Set<number>();
    for (let start = 0; start < text.length; ) {
      const length = this.symbols.longest(text, start);
      const end = Math.min(text.length, start + (length || characterLength(text[start]!)));
      if (length) frozen.add(start);
      const id = this.pieces.get(text, start, end);
      segments.push({ id: id < 0 ? this.unknown : id, start, end });
      start = end;
    }
    const merge: Merge = (left, right) => {
      if (frozen.has(left.start) || frozen.has(right.start)) return undefined;
      const id = this.pieces.get(text, left.start, right.end);
      return id < 0 ? undefined : { id, rank: -this.file.scores[id]! };
    };
    return merged(segments, merge);
  }

  /** Joins unknown characters side by side, unless they become bytes. */
  private joined(segments: readonly Segment[]): Segment[] {
    const joined: Segment[] = [];
    for (const segment of segments) {
      const last = joined.at(-1);
      if (last && last.id === this.unknown && segment.id === this.unknown && !this.file.hasByteFallback)
        last.end = segment.end;
      else joined.push({ ...segment });
    }
    return joined;
  }

  /** The id of what a piece is looked up as. */
  private entry(name: string): number {
    const id = this.file.vocabulary ? this.matched.get(name) : this.ids.get(name);
    return id ?? this.ids.get(this.unk) ?? -1;
  }

  /** The number of a piece, or of the unknown one. */
  private numberOf(name: string): number {
    return this.numbers.get(name) ?? this.unknown;
  }

  private isControl(name: string): boolean {
    return this.file.kinds[this.numberOf(name)] === Kind.CONTROL;
  }
}

function byteName(byte: number): string {
  return `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
}

/** Decodes bytes, those that are not part of a character one by one to U+FFFD. */
function characters(bytes: readonly number[]): string {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
  let text = "";
  for (let offset = 0; offset < bytes.length; ) {
    const length = characterLength(bytes[offset]!);
    try {
      text += decoder.decode(Uint8Array.from(bytes.slice(offset, offset + length)));
      offset += length;
    } catch {
      text += "\ufffd";
      offset++;
    }
  }
  return text;
}
