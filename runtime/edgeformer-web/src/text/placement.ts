/**
 * Puts the tags of a sentence into its translation: elements around the words that were translated from theirs. Whatever
 * the model writes, every tag is there once, elements are nested as before, and a placeholder stays in its elements.
 *
 * 1. The tags become a tree, whose nodes are spans of the source.
 * 2. From the outermost node to the innermost, those inside another one divide its words among themselves. Each gets the
 *    placeholders that it has in the source, then the run of words with most of their attention in it, or those that
 *    attend to one of its words most, or else the word nearest to where they would be. A placeholder that the model put
 *    elsewhere moves to the words of its element.
 * 3. A node without text goes between words.
 * 4. Where there are fewer words than elements, those that got none keep the text of the source, which is put into the
 *    translation as placeholders are, and all is placed again.
 * 5. The words and tags are written in order. White space goes outside elements.
 */
import {
  type AlignedSentence,
  bestGap,
  bestRun,
  isElided,
  isWord,
  restored,
  sharesOf,
  sourcesOf,
  spaced,
  type Word,
} from "./alignment.js";
import { type Block, type Item, type Piece, range, type Span, written } from "./block.js";
import {
  endsAlphanumeric,
  endsWithLetter,
  hasLetters,
  isBlank,
  isSpace,
  startsAlphanumeric,
  trim,
  trimEnd,
  trimStart,
} from "./patterns.js";

/** Owners of words that no node has, and of placeholders between the nodes. */
const [FREE, FIXED] = [-1, -2];

/** An element, or a tag that stands for itself. */
class TagNode {
  /** What is written before and after its words. */
  opening: Piece = "";
  closing: Piece = "";
  hasText = true;
  /** Whether it begins or ends an element whose other tag is in another sentence. */
  isBegun = false;
  isEnded = false;
  /** Whether it stands for itself, as an image does. */
  isAlone = false;
  /** Whether it has no text, and white space comes before it or follows it. */
  afterSpace = false;
  beforeSpace = false;
  readonly children: TagNode[] = [];
  /** Its first word in the translation, and the one after its last. */
  first = 0;
  last = 0;

  /** @param order position of its tag in the block. */
  constructor(
    readonly order: number,
    readonly start: number,
    readonly end: number,
  ) {}
}

/**
 * Chooses the tags that go with the words of a sentence: those of elements that begin and end in it but do not contain
 * all of it, tags inside such elements, and single tags between its words. Others stay before or after it.
 */
export function innerTags({ text, tags }: Block, [start, end]: Span): Set<number> {
  let [before, after] = [start, end];
  while (before && isSpace(text[before - 1]!)) before--;
  while (isSpace(text.slice(after, after + 1))) after++;
  const [chosen, whole] = [new Set<number>(), new Set<number>()];
  tags.forEach((tag, index) => {
    if (tag.offset < before || tag.offset > after) return;
    const other = tag.partner === undefined ? tag.offset : tags[tag.partner]!.offset;
    const [first, last] = [Math.min(tag.offset, other), Math.max(tag.offset, other)];
    const inner = [Math.max(first, start), Math.min(last, end)] as const;
    const isAll = inner[0] === start && inner[1] === end;
    const isPart = before <= first && last <= after && inner[0] < inner[1] && !isAll;
    if (isPart || (tag.parent !== undefined && whole.has(tag.parent))) whole.add(index);
    else if (start < tag.offset && tag.offset < end) chosen.add(index);
  });
  return new Set([...chosen, ...whole]);
}

/** Writes a translation with the chosen tags of its block. */
export function withTags(
  sentence: AlignedSentence,
  block: Block,
  chosen: ReadonlySet<number>,
  span: Span,
  language: string,
): Piece[] {
  let placed = sentence;
  let tags = [...chosen].sort((one, other) => one - other);
  while (true) {
    // Each round has fewer tags than the one before.
    const root = tree(block, tags, span);
    root.last = placed.words.length;
    const wordless: TagNode[] = [];
    for (let parents = [root]; parents.length; ) {
      const parent = parents.pop()!;
      placed = placeChildren(placed, block.text, parent, wordless);
      parents = [...parents, ...parent.children.filter((child) => child.first < child.last || !child.hasText)];
    }
    if (!wordless.length) return [...write(spaced(placed, block.text, span, language).words, root), placed.end];
    // Elements without words keep the text of the source, with the tags in it, as placeholders do.
    const kept = wordless.map((node) => source(block, node, span));
    placed = restored(placed, kept, block.text, span[0], kept);
    const isInner = (tag: number) =>
      wordless.some(({ order }) => order < tag && tag < (block.tags[order]!.partner ?? 0));
    tags = tags.filter((tag) => !isInner(tag));
  }
}

/** The text that an element has in a sentence of the source, with the tags in it, without white space at its edges. */
function source(block: Block, { order, start, end }: TagNode, span: Span): Item {
  const parts: { text: Piece[]; tag: Piece }[] = []; // what is before each tag, and the tag
  let offset = Math.max(start, span[0]);
  for (const tag of block.tags.slice(order + 1, block.tags[order]!.partner)) {
    parts.push({ text: written(block, offset, Math.min(tag.offset, span[1])), tag: tag.raw });
    offset = Math.max(offset, tag.offset);
  }
  parts.push({ text: written(block, offset, Math.min(end, span[1])), tag: "" });
  const isFilled = (piece: Piece) => typeof piece === "number" || !isBlank(piece);
  const filled = parts.flatMap(({ text }, index) => (text.some(isFilled) ? index : []));
  const raw = parts.flatMap(({ text, tag }, index) => {
    const trimmed = text.map((piece, at) => {
      if (typeof piece === "number") return piece;
      const begun = index <= filled[0]! && at === 0 ? trimStart(piece) : piece;
      return index >= filled.at(-1)! && at === text.length - 1 ? trimEnd(begun) : begun;
    });
    return [...trimmed, tag];
  });
  return { start, end, text: trim(block.text.slice(start, end)), raw };
}

/** Makes the tree of the chosen tags of a sentence; its root stands for the sentence itself. */
function tree({ text, tags }: Block, chosen: readonly number[], [start, end]: Span): TagNode {
  const root = new TagNode(-1, start, end);
  const nodes = new Map<number, TagNode>();
  const members = new Set(chosen);
  for (const index of chosen) {
    const { offset, raw, partner, parent } = tags[index]!;
    if (partner !== undefined && nodes.has(partner)) {
      nodes.get(partner)!.closing = raw;
      continue;
    }
    const isWhole = partner !== undefined && members.has(partner);
    const last = isWhole ? tags[partner]!.offset : offset;
    const node = new TagNode(index, offset, last);
    node.opening = raw;
    node.hasText = !isBlank(text.slice(offset, last));
    node.isAlone = partner === undefined;
    node.isEnded = !isWhole && partner !== undefined && partner < index;
    node.isBegun = !isWhole && partner !== undefined && !node.isEnded;
    if (!node.hasText && !node.isBegun && !node.isEnded) {
      // White space before the first word of the sentence or after its last is written around it.
      const close = isWhole ? partner : index;
      const isFirst = offset <= end && (!index || tags[index - 1]!.offset < offset);
      const isLast = last >= start && (close + 1 === tags.length || tags[close + 1]!.offset > last);
      node.afterSpace = isFirst && (!offset || isSpace(text[offset - 1]!));
      node.beforeSpace = isLast && isSpace(text.slice(last, last + 1));
    }
    nodes.set(index, node);
    // An element of which only one tag is chosen is a tag between words, and so not the parent of what is inside.
    const around = parent === undefined ? undefined : nodes.get(parent);
    (around && members.has(tags[around.order]!.partner ?? -1) ? around : root).children.push(node);
  }
  return root;
}

/** Gives the nodes inside another one their words, no two of which are the same for nodes side by side. */
function placeChildren(
  sentence: AlignedSentence,
  source: string,
  parent: TagNode,
  wordless: TagNode[],
): AlignedSentence {
  const { first, last } = parent;
  const children = parent.children.filter(({ hasText }) => hasText);
  const words = sentence.words.slice(first, last);
  // Placeholders belong to the child that they are in in the source, wherever the model put them.
  let owners = words.map(({ item }) => {
    if (!item) return FREE;
    const child = children.findIndex(({ start, end }) => start <= item.start && item.end <= end);
    return child < 0 ? FIXED : child;
  });
  const strays = new Set<number>(); // placeholders that are not among the words of their child
  // Children take words in two rounds, the longest first: the run of words with the largest sum of gains, which may go
  // through words without an owner and placeholders of its own, but not through words of others.
  let waiting = [...children.keys()].sort((one, other) => length(children[other]!) - length(children[one]!));
  for (const measured of [gains, preferences]) {
    waiting = waiting.filter((child) => {
      const own = measured(sentence, source, children[child]!).slice(first, last);
      const run = bestRun(
        own.map((gain, word) =>
          owners[word] === child ? 0.5 : owners[word] === FREE ? gain : Number.NEGATIVE_INFINITY,
        ),
      );
      if (!run) return true;
      owners.forEach((owner, word) => {
        if (run[0] <= word && word < run[1]) strays.delete(word);
        else if (owner === child) strays.add(word);
      });
      owners.fill(child, ...run);
      return false;
    });
  }
  // The model may have left the words of a child out. It gets the word nearest to the gap where they would be.
  for (const child of waiting.sort((one, other) => one - other)) {
    const { start, end } = children[child]!;
    const gap = bestGap(sentence, start, range(first, last + 1)) - first;
    const word = hasLetters(source.slice(start, end)) ? nearest(gap, words, owners) : undefined;
    if (word !== undefined) owners[word] = child;
    else if (dividesWord(sentence, source, children[child]!)) children[child]!.hasText = false;
    else wordless.push(children[child]!);
  }
  words.forEach((_, index) => {
    // An article that has lost its vowel goes with its word.
    if (isElided(words, index) && owners[index] === FREE) owners[index] = owners[index - 1]!;
  });
  let placed = sentence;
  if (strays.size) [placed, owners] = gathered(sentence, first, owners, strays);
  children.forEach((node, child) => {
    node.first = first + owners.indexOf(child);
    node.last = first + owners.lastIndexOf(child) + 1;
    if (!owners.includes(child)) node.first = node.last = first;
  });
  placeBetween(placed, parent);
  return placed;
}

const length = ({ start, end }: TagNode): number => end - start;

/** Gives the nodes without text inside another one their gaps, in order: neither inside another one nor behind `l'`. */
function placeBetween(sentence: AlignedSentence, parent: TagNode): void {
  const { first, last } = parent;
  const { words } = sentence;
  const filled = parent.children.filter((child) => child.hasText && child.first < child.last);
  let gaps = range(first, last + 1).filter(
    (gap) =>
      gap === first ||
      gap === last ||
      !(isElided(words, gap) || filled.some((node) => node.first < gap && gap < node.last)),
  );
  const items = range(first, last).flatMap((index) => {
    const { item } = words[index]!;
    return item ? { start: item.start, end: item.end, first: index, last: index + 1 } : [];
  });
  const placed = [...items, ...filled];
  const inner = range(first, last).filter((index) => isWord(words[index]!));
  for (const node of parent.children) {
    if (filled.includes(node)) continue;
    let free = gaps;
    if (node.isBegun) {
      // Its element has the words, elements and placeholders that follow.
      const behind = placed.filter(({ start }) => start >= node.start).map((part) => part.first);
      free = gaps.filter((gap) => gap <= Math.min(last, ...behind, inner.at(-1) ?? first));
    } else if (node.isEnded) {
      const ahead = placed.filter(({ end }) => end <= node.start).map((part) => part.last);
      free = gaps.filter((gap) => gap >= Math.max(first, ...ahead, (inner[0] ?? last - 1) + 1));
    }
    node.first = node.last = bestGap(sentence, node.start, free.length ? free : gaps.slice(0, 1));
    gaps = gaps.filter((gap) => gap >= node.first);
  }
}

/** Whether an element begins or ends inside a word, which is in the translation; a placeholder beside it is none. */
function dividesWord({ words, sourceWords }: AlignedSentence, source: string, { start, end }: TagNode): boolean {
  const apart = new Set([...sourceWords.flat(), ...words.flatMap(({ item }) => (item ? [item.start, item.end] : []))]);
  const isInside = (edge: number) => endsAlphanumeric(source.slice(0, edge)) && startsAlphanumeric(source.slice(edge));
  return [start, end].some((edge) => !apart.has(edge) && isInside(edge));
}

/** The word nearest to a gap that no child has, or else the first or last of several of a child. */
function nearest(gap: number, words: readonly Word[], owners: readonly number[]): number | undefined {
  const inner = [...words.keys()].filter((index) => isWord(words[index]!));
  const count = (owner: number) => inner.filter((index) => owners[index] === owner).length;
  const isEdge = (index: number) => owners[index - 1] !== owners[index] || owners[index + 1] !== owners[index];
  const free = inner.filter((index) => owners[index] === FREE);
  const shared = inner.filter((index) => owners[index]! >= 0 && isEdge(index) && count(owners[index]!) > 1);
  const distance = (index: number) => Math.abs(index + 0.5 - gap);
  const candidates = free.length ? free : shared;
  return candidates.length
    ? candidates.reduce((one, other) => (distance(other) < distance(one) ? other : one))
    : undefined;
}

/** Moves placeholders to the nearer end of the other words of their owner. */
function gathered(
  sentence: AlignedSentence,
  first: number,
  owners: readonly number[],
  strays: ReadonlySet<number>,
): [AlignedSentence, number[]] {
  const keys = owners.map((owner, index) => {
    if (!strays.has(index)) return index;
    const own = range(0, owners.length).filter((word) => owners[word] === owner && !strays.has(word));
    return index < own[0]! ? own[0]! - 0.25 : own.at(-1)! + 0.25;
  });
  const order = [...keys.keys()].sort((one, other) => keys[one]! - keys[other]! || one - other);
  const words = [...sentence.words];
  for (const [index, moved] of order.entries()) words[first + index] = sentence.words[first + moved]!;
  if (words[0] !== sentence.words[0]) {
    const at = words.indexOf(sentence.words[0]!);
    words[at] = { ...words[at]!, space: " " };
    words[0] = { ...words[0]!, space: sentence.words[0]!.space }; // white space before the first one stays there
  }
  return [{ ...sentence, words }, order.map((index) => owners[index]!)];
}

/** How much each word attends to an element; less than any number if the source word that it attends to most is
 * elsewhere. */
function preferences(sentence: AlignedSentence, _: string, { start, end }: TagNode): number[] {
  const sources = sourcesOf(sentence);
  return sharesOf(sentence, start, end).map((share, index) => {
    const source = sources[index];
    const isInner = source && isWord(sentence.words[index]!) && start <= source[0] && source[1] <= end;
    return isInner ? share : Number.NEGATIVE_INFINITY;
  });
}

/** How much each word belongs to an element: positive if most of it was translated from the element's text. Punctuation
 * that the element does not have may be between its words only. */
function gains(sentence: AlignedSentence, source: string, { start, end }: TagNode): number[] {
  const text = source.slice(start, end);
  return sharesOf(sentence, start, end).map((share, index) => {
    const { text: word } = sentence.words[index]!;
    const isForeign = !/^[\p{L}\p{N}]/u.test(word) && !text.includes(word);
    return isForeign ? Math.min(share - 0.5, -0.01) : share - 0.5;
  });
}

/** The words and tags in order, and the white space between them. */
function write(words: readonly Word[], root: TagNode): Piece[] {
  const pieces: Piece[] = [];
  // The next word; whether the white space before it is written; whether there must be some.
  let [index, isSpaced, isApart] = [0, false, false];
  const space = (isWanted: boolean): string => {
    if (isSpaced) return "";
    const own = words[index]?.space ?? "";
    const isEdge = index ? index === words.length || endsWithLetter(words[index - 1]!.text) : isApart;
    return own || (isEdge && (isWanted || !index) ? " " : "");
  };
  // What is still to be written, the next at the end: a node that begins, its end, or a word.
  const waiting: (TagNode | { tag: Piece } | number)[] = [root];
  for (let part = waiting.pop(); part !== undefined; part = waiting.pop()) {
    if (typeof part === "number") {
      pieces.push(space(false), ...(words[part]!.item?.raw ?? [words[part]!.text]));
      [index, isSpaced, isApart] = [part + 1, false, false];
    } else if ("tag" in part) pieces.push(part.tag);
    else {
      // White space goes before what has text, so that it is outside: `a <b>word</b>`.
      if (part.hasText || part.isBegun || part.afterSpace) {
        const before = space(part.afterSpace && part.isAlone);
        isSpaced ||= before !== "";
        pieces.push(before);
      }
      pieces.push(part.opening);
      // That of the next word follows the tag: `word<br> next`.
      if (part.beforeSpace) [isSpaced, isApart] = [false, isApart || part.isAlone];
      const inner: typeof waiting = [];
      let after = part.first;
      const ordered = [...part.children].sort((a, b) => a.first - b.first || a.last - b.last || a.order - b.order);
      for (const child of ordered) {
        inner.push(...range(after, child.first), child);
        after = child.last;
      }
      waiting.push(...[...inner, ...range(after, part.last), { tag: part.closing }].reverse());
    }
  }
  return pieces.filter((piece) => piece !== "");
}
