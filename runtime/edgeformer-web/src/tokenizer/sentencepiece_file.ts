/**
 * The file of a SentencePiece model: a `ModelProto` of `sentencepiece_model.proto`, and the field `VOCABULARY` of bundles
 * whose models number their tokens in another way than SentencePiece numbers its pieces.
 */
import { SchemaProblem } from "../bundle/schema.js";
import { type Field, fields } from "./protobuf.js";

const MAX_PIECES = 2 ** 20;
const MAX_PIECE_BYTES = 512;
const MAX_CHARSMAP_BYTES = 4 * 2 ** 20;
/** Bytes that a character is replaced with, or that unknown tokens are decoded to. */
const MAX_AFFIX = 64;

const VOCABULARY = 200;
const UNIGRAM = 1;
const BPE = 2;

/** What a piece is for. */
export const Kind = { NORMAL: 1, UNKNOWN: 2, CONTROL: 3, USER_DEFINED: 4, UNUSED: 5, BYTE: 6 } as const;

/** How text is normalized. */
export interface Rules {
  /** Size of a trie in 4 bytes, a double-array trie, and replacements, each of which ends with NUL; may be empty. */
  charsmap: Uint8Array;
  addDummyPrefix: boolean;
  removeExtraWhitespaces: boolean;
  escapeWhitespaces: boolean;
}

/** The content of a file. */
export interface SentencePieceFile {
  /** Pieces by their numbers, the bytes of each, its score and what it is for. */
  pieces: string[];
  bytes: Uint8Array[];
  scores: number[];
  kinds: number[];
  isBpe: boolean;
  hasByteFallback: boolean;
  treatWhitespaceAsSuffix: boolean;
  /** What the unknown token is decoded to. */
  unkSurface: string;
  normalizer: Rules;
  denormalizer: Rules;
  /** Entries by their ids; undefined if they are the pieces. */
  vocabulary: string[] | undefined;
}

/**
 * Reads a file.
 *
 * @throws SchemaProblem: it is damaged, exceeds a limit, or is of another kind than unigram and BPE.
 */
export function readSentencePiece(data: Uint8Array): SentencePieceFile {
  const file: SentencePieceFile = {
    pieces: [],
    bytes: [],
    scores: [],
    kinds: [],
    isBpe: false,
    hasByteFallback: false,
    treatWhitespaceAsSuffix: false,
    unkSurface: " \u2047 ",
    normalizer: rules(),
    denormalizer: rules(),
    vocabulary: undefined,
  };
  for (const field of fields(data, 0, data.length)) {
    if (field.number === 1) readPiece(file, data, field);
    else if (field.number === 2) readTrainer(file, data, field);
    else if (field.number === 3) readRules(file.normalizer, data, field);
    else if (field.number === 5) readRules(file.denormalizer, data, field);
    else if (field.number === VOCABULARY) file.vocabulary = utf8(data.subarray(field.start, field.end)).split("\0");
  }
  check(file);
  return file;
}

function rules(): Rules {
  return { charsmap: new Uint8Array(), addDummyPrefix: true, removeExtraWhitespaces: true, escapeWhitespaces: true };
}

function readPiece(file: SentencePieceFile, data: Uint8Array, { start, end }: Field): void {
  if (end - start > MAX_PIECE_BYTES) throw new SchemaProblem(`it has a piece of more than ${MAX_PIECE_BYTES} bytes`);
  if (file.pieces.length >= MAX_PIECES) throw tooMany();
  let bytes = new Uint8Array();
  let score = 0;
  let kind: number = Kind.NORMAL;
  for (const field of fields(data, start, end)) {
    if (field.number === 1) bytes = data.slice(field.start, field.end);
    else if (field.number === 2) score = new DataView(data.buffer, data.byteOffset + field.start).getFloat32(0, true);
    else if (field.number === 3) kind = field.value;
  }
  file.pieces.push(utf8(bytes));
  file.bytes.push(bytes);
  file.scores.push(score);
  file.kinds.push(kind);
}

function readTrainer(file: SentencePieceFile, data: Uint8Array, { start, end }: Field): void {
  for (const field of fields(data, start, end)) {
    if (field.number === 3) {
      if (field.value !== UNIGRAM && field.value !== BPE)
        throw new SchemaProblem("it divides text into words or characters, but must be of the kind unigram or BPE");
      file.isBpe = field.value === BPE;
    } else if (field.number === 24) file.treatWhitespaceAsSuffix = field.value !== 0;
    else if (field.number === 35) file.hasByteFallback = field.value !== 0;
    else if (field.number === 44) {
      if (field.end - field.start > MAX_AFFIX)
        throw new SchemaProblem(`it decodes unknown tokens to more than ${MAX_AFFIX} bytes`);
      file.unkSurface = utf8(data.subarray(field.start, field.end)).split("\0")[0]!;
    }
  }
}

function readRules(into: Rules, data: Uint8Array, { start, end }: Field): void {
  for (const field of fields(data, start, end)) {
    if (field.number === 2) {
      into.charsmap = data.slice(field.start, field.end);
      if (into.charsmap.length > MAX_CHARSMAP_BYTES)
        throw new SchemaProblem(`its character rules have more than ${MAX_CHARSMAP_BYTES} bytes`);
    } else if (field.number === 3) into.addDummyPrefix = field.value !== 0;
    else if (field.number === 4) into.removeExtraWhitespaces = field.value !== 0;
    else if (field.number === 5) into.escapeWhitespaces = field.value !== 0;
  }
}

/** Checks what a single field does not show. */
function check(file: SentencePieceFile): void {
  const { pieces, kinds, vocabulary } = file;
  if ((vocabulary?.length ?? 0) > MAX_PIECES) throw tooMany();
  if (kinds.filter((kind) => kind === Kind.UNKNOWN).length !== 1)
    throw new SchemaProblem("it must have one unknown piece");
  if (pieces.includes("") || pieces.some((piece) => piece.includes("\0"))) throw new SchemaProblem("a piece is empty");
  if (new Set(pieces).size < pieces.length || (vocabulary && new Set(vocabulary).size < vocabulary.length))
    throw new SchemaProblem("an entry is duplicated");
  const bytes = new Set(pieces.filter((_, id) => kinds[id] === Kind.BYTE));
  const wanted = file.hasByteFallback ? 256 : 0;
  if (bytes.size !== wanted || [...bytes].some((piece) => !/^<0x[0-9A-F]{2}>$/.test(piece)))
    throw new SchemaProblem(`it must have ${wanted} pieces for bytes`);
  for (const { charsmap } of [file.normalizer, file.denormalizer]) {
    if (!charsmap.length) continue;
    const size = charsmap.length > 4 ? new DataView(charsmap.buffer).getUint32(0, true) : Number.POSITIVE_INFINITY;
    if (size % 4 || 4 + size >= charsmap.length || charsmap.at(-1) !== 0)
      throw new SchemaProblem("its character rules are damaged");
    let longest = 0;
    for (let start = 4 + size, end = 0; start < charsmap.length; start = end + 1) {
      end = charsmap.indexOf(0, start);
      longest = Math.max(longest, end - start);
    }
    if (longest > MAX_AFFIX)
      throw new SchemaProblem(`it replaces a character with ${longest} bytes, but at most ${MAX_AFFIX} are allowed`);
  }
}

function tooMany(): SchemaProblem {
  return new SchemaProblem(`it has more than ${MAX_PIECES} pieces`);
}

function utf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new SchemaProblem("a text in it is not valid UTF-8");
  }
}
