/** SentencePiece's normalization: character rules, white space, and a space before the first word or after the last. */
import { SchemaProblem } from "../bundle/schema.js";
import type { Normalization } from "../generated.js";
import type { Trie } from "./trie.js";
import { characterLength } from "./utf8.js";

/** NormalizedText text. */
export interface NormalizedText {
  bytes: Uint8Array;
  /** For each byte, and the end: the byte of the text that it stands for. */
  origins: number[];
}

/** Bytes that a character is replaced with. */
const MAX_REPLACEMENT = 64;
const SPACE = 0x20;
/** U+2581, which stands for a space. */
const SPACE_SYMBOL = [0xe2, 0x96, 0x81];

/** Normalizes text as a SentencePiece model says. Immutable. */
export class Normalizer {
  private readonly units: Uint32Array;
  private readonly replacements: Uint8Array;

  /**
   * @param rules what the model says.
   * @param asSuffix whether the added space is after the text.
   * @param symbols texts that are kept as they are.
   * @throws SchemaProblem: its rules for characters are damaged.
   */
  constructor(
    private readonly rules: Normalization,
    private readonly asSuffix: boolean,
    private readonly symbols?: Trie,
  ) {
    const charsmap = fromBase64(rules.charsmap);
    const size = charsmap.length > 4 ? new DataView(charsmap.buffer).getUint32(0, true) : 0;
    if (charsmap.length && (!size || size % 4 || 4 + size >= charsmap.length || charsmap.at(-1) !== 0))
      throw new SchemaProblem("its character rules are damaged");
    this.units = new Uint32Array(charsmap.slice(4, 4 + size).buffer);
    this.replacements = charsmap.subarray(4 + size);
    for (let start = 0, end = 0; start < this.replacements.length; start = end + 1) {
      end = this.replacements.indexOf(0, start);
      if (end - start > MAX_REPLACEMENT)
        throw new SchemaProblem(`it replaces a character with more than ${MAX_REPLACEMENT} bytes`);
    }
  }

  /** Normalizes text in UTF-8. */
  normalize(text: Uint8Array): NormalizedText {
    const { add_dummy_prefix: addsSpace, remove_extra_whitespaces: trims } = this.rules;
    const space = this.rules.escape_whitespaces ? SPACE_SYMBOL : [SPACE];
    const bytes: number[] = [];
    const origins: number[] = [];
    let offset = 0;
    const add = (part: readonly number[]) => {
      for (const byte of part) {
        bytes.push(byte);
        origins.push(offset);
      }
    };
    let part = this.prefix(text, offset);
    while (trims && offset < text.length && part.bytes.length === 1 && part.bytes[0] === SPACE) {
      offset += part.length;
      part = this.prefix(text, offset);
    }
    if (offset < text.length && addsSpace && !this.asSuffix) add(space);
    const isBlank = offset >= text.length;
    for (let afterSpace = trims; offset < text.length; part = this.prefix(text, offset)) {
      let start = 0;
      while (afterSpace && part.bytes[start] === SPACE) start++;
      for (const byte of part.bytes.subarray(start)) add(byte === SPACE ? space : [byte]);
      if (start < part.bytes.length) afterSpace = part.bytes.at(-1) === SPACE;
      offset += part.length;
      afterSpace &&= trims;
    }
    while (trims && space.every((byte, index) => bytes.at(index - space.length) === byte)) {
      bytes.length -= space.length;
      offset = origins[bytes.length]!;
      origins.length = bytes.length;
    }
    if (!isBlank && addsSpace && this.asSuffix) add(space);
    return { bytes: Uint8Array.from(bytes), origins: [...origins, offset] };
  }

  /** What the beginning of a text becomes, and its number of bytes: a symbol, the longest match of a rule, or else a
   * character. */
  private prefix(text: Uint8Array, start: number): { bytes: Uint8Array; length: number } {
    const kept = this.symbols?.longest(text, start) ?? 0;
    if (kept) return { bytes: text.subarray(start, start + kept), length: kept };
    // A double-array trie: a unit has 8 bits of label, 22 of the offset to its children, and whether a key ends there,
    // whose value is then in the child 0.
    let found = 0;
    let length = 0;
    let node = childrenOf(this.units[0] ?? 0);
    for (let index = start; index < text.length; index++) {
      node ^= text[index]!;
      const unit = this.units[node];
      if (unit === undefined || (unit & 0x800000ff) !== text[index]) break;
      node ^= childrenOf(unit);
      if ((unit >>> 8) & 1) {
        found = (this.units[node] ?? 0) & 0x7fffffff;
        length = index + 1 - start;
      }
    }
    if (length) return { bytes: this.replacements.subarray(found, this.replacements.indexOf(0, found)), length };
    length = characterLength(text[start] ?? 0);
    return { bytes: text.subarray(start, start + length), length };
  }
}

function childrenOf(unit: number): number {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    throw new SchemaProblem("its character rules are not base64");
  }
}
