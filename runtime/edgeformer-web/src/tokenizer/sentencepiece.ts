/** Encoding and decoding by a SentencePiece model, unigram or BPE, as its own library does. */
import { SchemaProblem } from "../bundle/schema.js";
import type { SentencePieceFile } from "../generated.js";
import { BaseTokenizer, type Token } from "./base.js";
import { Normalizer } from "./normalizer.js";
import { type Merge, merged, mostProbable, type PieceScores, type Segment } from "./segmentation.js";
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
export class SentencePieceTokenizer extends BaseTokenizer {
  protected readonly names: readonly string[];
  protected readonly ids: ReadonlyMap<string, number>;
  /** The number of each piece. */
  private readonly numbers: ReadonlyMap<string, number>;
  private readonly control: ReadonlySet<number>;
  private readonly bytes: ReadonlySet<number>;
  /** Entries that text may become: those that are neither special nor control pieces. */
  private readonly matched: ReadonlyMap<string, number>;
  private readonly symbols = new Trie();
  private readonly pieces = new Trie();
  private readonly normalizer: Normalizer;
  private readonly denormalizer: Normalizer | undefined;
  private readonly probable: PieceScores;

  /**
   * @param file the model.
   * @param special names of tokens that no text may be encoded to.
   * @param unk name of the unknown token.
   * @throws SchemaProblem: the file contradicts itself, or text could be encoded to a special token.
   */
  constructor(
    private readonly file: SentencePieceFile,
    special: ReadonlySet<string>,
    private readonly unk: string,
  ) {
    super(special);
    checkFile(file);
    this.control = new Set(file.control);
    this.bytes = new Set(file.byte);
    this.names = file.vocabulary ?? file.pieces;
    this.ids = new Map(this.names.map((name, id) => [name, id]));
    this.numbers = new Map(file.pieces.map((piece, number) => [piece, number]));
    const encoder = new TextEncoder();
    for (const [number, piece] of file.pieces.entries())
      if (number !== file.unknown && !this.control.has(number) && !this.bytes.has(number))
        this.pieces.add(encoder.encode(piece), number);
    for (const number of file.user_defined) this.symbols.add(encoder.encode(file.pieces[number]), number);
    const symbols = file.user_defined.length ? this.symbols : undefined;
    this.normalizer = new Normalizer(file.normalizer, file.space_as_suffix, symbols);
    this.denormalizer = file.denormalizer?.charsmap ? new Normalizer(file.denormalizer, false) : undefined;
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
      if (id === this.file.unknown && this.bytes.size) {
        // The last byte stands for the character, and those before it for nothing.
        for (let offset = start; offset < end - 1; offset++)
          tokens.push({ id: this.entry(byteName(bytes[offset]!)), start: at(start), end: at(start) });
        tokens.push(token(this.entry(byteName(bytes[end - 1]!)), start));
      } else {
        const name = id === this.file.unknown ? decodeUtf8(bytes.subarray(start, end)) : this.file.pieces[id]!;
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
    const isPiece = this.numberOf(name) !== this.file.unknown || !this.file.vocabulary || name === this.unk;
    return isPiece ? name : AS_IT_IS + name.replaceAll(SPACE, " ");
  }

  /** Joins pieces; those that the model does not have are text. */
  private text(names: readonly string[]): string {
    const { normalizer, unk_surface: unkSurface, pieces } = this.file;
    const drops = normalizer.add_dummy_prefix || normalizer.remove_extra_whitespaces;
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
      if (this.bytes.has(number)) {
        bytes.push(Number.parseInt(name.slice(3, 5), 16));
        continue;
      }
      flush();
      isFirst &&= !wasDropped && !text;
      wasDropped = false;
      if (this.control.has(number)) continue;
      if (number === this.file.unknown) text += pieces[number] === name ? unkSurface : name;
      else if (isFirst && drops && name.startsWith(SPACE)) {
        wasDropped = !normalizer.remove_extra_whitespaces;
        text += name.slice(SPACE.length).replaceAll(SPACE, " ");
      } else text += name.replaceAll(SPACE, " ");
    }
    flush();
    return this.denormalizer ? decodeUtf8(this.denormalizer.normalize(new TextEncoder().encode(text)).bytes) : text;
  }

  /** The scores of a unigram model, in float32 as the library adds them. A symbol costs nothing. */
  private scored(): PieceScores {
    const scores = this.file.scores.map(Math.fround);
    const { unknown, control, user_defined: symbols, unused, byte } = this.file;
    const others = new Set([unknown, ...control, ...symbols, ...unused, ...byte]);
    const least = scores.reduce((one, other, number) => (others.has(number) ? one : Math.min(one, other)), MAX_FLOAT);
    for (const number of unused) scores[number] = Number.NaN;
    for (const number of symbols) scores[number] = 0;
    const unknownScore = Math.fround(least - UNKNOWN_PENALTY);
    return { trie: this.pieces, score: (number) => scores[number]!, unknown, unknownScore, round: Math.fround };
  }

  /** Divides normalized text into pieces, and characters that no piece has. */
  private divided(text: Uint8Array): Segment[] {
    if (this.file.model === "unigram") return mostProbable(text, this.probable);
    const segments: Segment[] = [];
    const frozen = new Set<number>();
    for (let start = 0; start < text.length; ) {
      const length = this.symbols.longest(text, start);
      const end = Math.min(text.length, start + (length || characterLength(text[start]!)));
      if (length) frozen.add(start);
      const id = this.pieces.get(text, start, end);
      segments.push({ id: id < 0 ? this.file.unknown : id, start, end });
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
      if (last && last.id === this.file.unknown && segment.id === this.file.unknown && !this.bytes.size)
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
    return this.numbers.get(name) ?? this.file.unknown;
  }

  private isControl(name: string): boolean {
    return this.control.has(this.numberOf(name));
  }
}

/** Checks what the types of fields do not show. */
function checkFile({
  model,
  pieces,
  scores,
  unknown,
  control,
  user_defined,
  unused,
  byte,
  vocabulary,
}: SentencePieceFile) {
  if (scores.length !== pieces.length) throw new SchemaProblem("it must have a score for each piece");
  if ([unknown, ...control, ...user_defined, ...unused, ...byte].some((number) => number >= pieces.length))
    throw new SchemaProblem("it has a number of a piece that does not exist");
  if (new Set(pieces).size < pieces.length || (vocabulary && new Set(vocabulary).size < vocabulary.length))
    throw new SchemaProblem("an entry is duplicated");
  if (unused.length && model === "bpe") throw new SchemaProblem("it has unused pieces");
  const bytes = new Set(byte.map((number) => pieces[number]!));
  if (byte.length && (bytes.size !== 256 || [...bytes].some((piece) => !/^<0x[0-9A-F]{2}>$/.test(piece))))
    throw new SchemaProblem("it must have 256 pieces for bytes, or none");
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
