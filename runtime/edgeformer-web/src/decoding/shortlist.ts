/**
 * A bundle's shortlist: the target tokens that a sentence may use, so that a step need not score the whole vocabulary.
 *
 * `shortlist.bin` is little-endian. Its header are four u32: the number of source tokens, of target tokens, of those
 * that every sentence may use, and of list entries. Then follow the end of each source token's list, as u32; all target
 * tokens by falling frequency; and the lists. Target tokens are u16, or u32 if there are more than 65,536 of them.
 */
import { type Manifest, SHORTLIST_FILE } from "../bundle/manifest.js";
import type { Bytes } from "../bundle/source.js";
import type { Listing } from "../engine/interface.js";
import { EdgeformerError } from "../errors.js";

const HEADER_BYTES = 16;
/** The number of tokens of a sentence is a multiple of this, so that kernels compute whole vectors. */
const MULTIPLE = 128;

/** Lists of target tokens by source token. */
export class Shortlist {
  private constructor(
    private readonly always: number,
    private readonly ends: Uint32Array,
    private readonly frequent: Uint16Array | Uint32Array,
    private readonly tokens: Uint16Array | Uint32Array,
    private readonly never: readonly number[],
  ) {}

  /**
   * Reads the content of `shortlist.bin`. Tokens that the model never generates are on no list.
   *
   * @throws EdgeformerError of kind `bundle`: it is damaged, or is for other vocabularies.
   */
  static read(data: Bytes, { source_vocab_size, target_vocab_size, special }: Manifest): Shortlist {
    const wrong = (why: string) =>
      new EdgeformerError("bundle", `The bundle's \`${SHORTLIST_FILE}\` is damaged: ${why}; export the bundle again.`);
    if (data.length < HEADER_BYTES) throw wrong("it is too short");
    const [sources = 0, targets = 0, always = 0, entries = 0] = new Uint32Array(data.buffer, data.byteOffset, 4);
    if (sources !== source_vocab_size || targets !== target_vocab_size) throw wrong("it is for other vocabularies");
    const Id = targets <= 2 ** 16 ? Uint16Array : Uint32Array;
    const middle = HEADER_BYTES + 4 * sources;
    const bytes = Id.BYTES_PER_ELEMENT;
    if (data.length !== middle + bytes * (targets + entries) || always > targets) throw wrong("its size is wrong");
    const ends = new Uint32Array(data.buffer, data.byteOffset + HEADER_BYTES, sources);
    const frequent = new Id(data.buffer, data.byteOffset + middle, targets);
    const tokens = new Id(data.buffer, data.byteOffset + middle + bytes * targets, entries);
    const isAscending = ends.every((end, i) => end >= (ends[i - 1] ?? 0)) && ends.at(-1) === entries;
    if (!isAscending || new Set(frequent).size !== targets || [frequent, tokens].some((ids) => !isBelow(ids, targets)))
      throw wrong("its lists are wrong");
    return new Shortlist(always, ends, frequent, tokens, [...special.suppress, ...special.forbid]);
  }

  /** The target tokens that any sentence of a batch may use, and which of them each may use. */
  listing(sources: readonly (readonly number[])[]): Listing {
    const size = this.frequent.length;
    const masks = sources.map((source) => this.#usable(source));
    const chosen = new Uint8Array(size);
    for (const mask of masks) for (let token = 0; token < size; token++) chosen[token]! |= mask[token]!;
    const count = countOf(chosen);
    let surplus = Math.min((MULTIPLE - (count % MULTIPLE)) % MULTIPLE, size - count);
    for (let i = 0; surplus > 0; i++) {
      const token = this.frequent[i]!;
      if (chosen[token]) continue;
      chosen[token] = 1;
      surplus--;
    }
    const listed = new Int32Array(countOf(chosen));
    for (let token = 0, at = 0; token < size; token++) if (chosen[token]) listed[at++] = token;
    const usable = new Uint8Array(sources.length * listed.length);
    for (const [n, mask] of masks.entries()) {
      for (const token of this.never) mask[token] = 0;
      for (let i = 0; i < listed.length; i++) usable[n * listed.length + i] = mask[listed[i]!]!;
    }
    return { listed, usable };
  }

  /** Whether a sentence may use each target token, (V,). */
  #usable(source: readonly number[]): Uint8Array {
    const usable = new Uint8Array(this.frequent.length);
    for (let i = 0; i < this.always; i++) usable[this.frequent[i]!] = 1;
    for (const token of new Set(source))
      for (let i = this.ends[token - 1] ?? 0; i < this.ends[token]!; i++) usable[this.tokens[i]!] = 1;
    return usable;
  }
}

function isBelow(ids: Uint16Array | Uint32Array, size: number): boolean {
  return ids.every((id) => id < size);
}

/** Number of ones. */
function countOf(mask: Uint8Array): number {
  let count = 0;
  for (let i = 0; i < mask.length; i++) count += mask[i]!;
  return count;
}
