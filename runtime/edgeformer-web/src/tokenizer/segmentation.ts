/** How text is divided into entries of a vocabulary: the most probable division, and merges of pairs. */
import type { Trie } from "./trie.js";
import { characterLength } from "./utf8.js";

/** Part of a text that an entry stands for, in bytes or symbols. */
export interface Segment {
  id: number;
  start: number;
  end: number;
}

/** What a division into pieces is scored by. */
export interface PieceScores {
  trie: Trie;
  /** The score of a piece; `NaN` if it is not used. */
  score(id: number): number;
  /** The number of what is not among the pieces, a character each, and its score. */
  unknown: number;
  unknownScore: number;
  /** How sums of scores are rounded. */
  round(sum: number): number;
}

/**
 * Divides text in UTF-8 into the pieces whose scores have the largest sum; of several divisions, the one found first.
 * Linear in the length of the text: from every character, only pieces that the text has are followed (Viterbi).
 */
export function mostProbable(text: Uint8Array, pieces: PieceScores): Segment[] {
  // The best division of the text up to each byte: its sum, and the number and start of its last piece.
  const sums = new Float64Array(text.length + 1);
  const ids = new Int32Array(text.length + 1);
  const starts = new Int32Array(text.length + 1).fill(-1);
  const offer = (id: number, start: number, end: number, score: number) => {
    const sum = pieces.round(score + sums[start]!);
    if (starts[end] !== -1 && !(sum > sums[end]!)) return;
    sums[end] = sum;
    ids[end] = id;
    starts[end] = start;
  };
  for (let start = 0; start < text.length; ) {
    const next = Math.min(text.length, start + characterLength(text[start]!));
    let isKnown = false;
    let node = 0;
    for (let end = start; end < text.length; ) {
      node = pieces.trie.next(node, text[end++]!);
      if (node < 0) break;
      const id = pieces.trie.value(node);
      const score = id < 0 ? Number.NaN : pieces.score(id);
      if (Number.isNaN(score)) continue;
      offer(id, start, end, score);
      isKnown ||= end === next;
    }
    if (!isKnown) offer(pieces.unknown, start, next, pieces.unknownScore);
    start = next;
  }
  const segments: Segment[] = [];
  for (let end = text.length; end > 0; end = starts[end]!) segments.push({ id: ids[end]!, start: starts[end]!, end });
  return segments.reverse();
}

/** What two neighbors become, and how early: lower ranks are merged first. */
export type Merge = (left: Segment, right: Segment) => { id: number; rank: number } | undefined;

/**
 * Merges neighbors until no two of them can be merged; of several pairs of the same rank, the first. The pairs wait in a
 * heap, so that the time grows with n log n.
 *
 * @param segments what is merged; it is changed.
 */
export function merged(segments: Segment[], merge: Merge): Segment[] {
  // The segments are a linked list: the position of the next one, or `GONE` after a merge into the one before, and of
  // the one before.
  const next = segments.map((_, index) => index + 1);
  const before = segments.map((_, index) => index - 1);
  const heap: MergeCandidate[] = [];
  const offer = (left: number) => {
    const right = next[left]!;
    const found = left < 0 || right >= segments.length ? undefined : merge(segments[left]!, segments[right]!);
    if (found) push(heap, { ...found, left });
  };
  for (let left = 0; left + 1 < segments.length; left++) offer(left);
  for (let top = pop(heap); top; top = pop(heap)) {
    const { left } = top;
    const right = next[left]!;
    if (right === GONE || right >= segments.length) continue;
    const found = merge(segments[left]!, segments[right]!);
    if (found?.id !== top.id) continue; // one of them was merged with another neighbor
    segments[left] = { id: top.id, start: segments[left]!.start, end: segments[right]!.end };
    next[left] = next[right]!;
    next[right] = GONE;
    if (next[left]! < segments.length) before[next[left]!] = left;
    offer(before[left]!);
    offer(left);
  }
  return segments.filter((_, index) => next[index] !== GONE);
}

const GONE = -1;

/** A pair that may be merged: the position of its left segment. */
interface MergeCandidate {
  id: number;
  rank: number;
  left: number;
}

function precedes(one: MergeCandidate, other: MergeCandidate): boolean {
  return one.rank < other.rank || (one.rank === other.rank && one.left < other.left);
}

function push(heap: MergeCandidate[], entry: MergeCandidate): void {
  let index = heap.length;
  while (index > 0) {
    const parent = (index - 1) >> 1;
    if (!precedes(entry, heap[parent]!)) break;
    heap[index] = heap[parent]!;
    index = parent;
  }
  heap[index] = entry;
}

function pop(heap: MergeCandidate[]): MergeCandidate | undefined {
  const top = heap[0];
  const last = heap.pop();
  if (!top || !last || !heap.length) return top;
  let index = 0;
  for (let child = 1; child < heap.length; child = 2 * index + 1) {
    if (child + 1 < heap.length && precedes(heap[child + 1]!, heap[child]!)) child++;
    if (!precedes(heap[child]!, last)) break;
    heap[index] = heap[child]!;
    index = child;
  }
  heap[index] = last;
  return top;
}
