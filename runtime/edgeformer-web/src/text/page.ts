/**
 * Whole pages, translated in place: the text of elements and the attributes that people read. Inline elements stay around
 * the words that are translated from theirs, and are moved, not made again, so that their listeners stay; text nodes are
 * used again, for pages that keep them. Scripts, styles and code, what says `translate="no"` or has the class
 * `notranslate`, and what can be edited stay as they are, and so does what the page changes while it is translated.
 *
 * Blocks are those of the Python package's `text/markup`, but that an inline element with block elements in it begins and
 * ends blocks itself.
 */
import type { CallOptions, Translator } from "../decoding/translation.js";
import type { Block, Item, Piece, Tag } from "./block.js";
import lexicon from "./lexicon.json" with { type: "json" };
import { endsWithLetter, hasLetters, isBlank, startsWithLetter } from "./patterns.js";
import type { TextOptions } from "./text_translator.js";

const names = (text: string): ReadonlySet<string> => new Set(text.split(" "));
const { inline, copied, images, attributes: ATTRIBUTES, attributes_of, button_types, metadata } = lexicon.html;
/** Elements inside sentences; others end a sentence. */
const INLINE = names(inline);
/** Elements whose content is not translated. */
const COPIED = names(copied);
/** Elements without content, and those of them that are shown between words. */
const VOID = names(lexicon.html.void);
const IMAGES = names(images);
/** Attributes that people read: of any element, and of those that selectors find. */
const OWN_ATTRIBUTES: Record<string, string> = {
  ...Object.fromEntries(Object.entries(attributes_of).map(([name, elements]) => [name, elements.join()])),
  value: button_types.map((type) => `input[type=${type} i]`).join(),
  content: metadata.map((name) => `meta[name='${name}' i], meta[property='${name}' i]`).join(),
};
const RIGHT_TO_LEFT = /^(?:ar|ckb|dv|fa|he|iw|ps|sd|ug|ur|yi)\b/;
/** Characters that are translated at a time. */
const BATCH = 2000;

/** How a page is translated. */
export interface PageOptions {
  /** Options of decoding, and the signal that gives the page up. */
  options?: CallOptions | undefined;
  textOptions?: TextOptions | undefined;
  /** Code of the language that the page gets; by default, that of the model. */
  language?: string | undefined;
  /** Is called with the characters that are translated, and those of the page. */
  onProgress?: ((done: number, all: number) => void) | undefined;
}

/** A block of the page, and how its translation is put there, unless the page has changed it. */
interface PageBlock {
  block: Block;
  write(pieces: readonly Piece[]): void;
}

/**
 * Translates a page in place, from its beginning on.
 *
 * @param root the element to translate, such as `document.documentElement`.
 */
export async function translatePage(
  translator: Pick<Translator, "translateBlocks" | "manifest">,
  root: Element,
  { options, textOptions, language = translator.manifest.target_language, onProgress }: PageOptions = {},
): Promise<void> {
  const found = pageBlocks(root);
  const own = root.getAttribute("lang");
  const size = ({ block }: PageBlock) => block.text.length;
  const all = found.reduce((sum, each) => sum + size(each), 0);
  let done = 0;
  while (found.length) {
    const batch: PageBlock[] = [];
    let count = 0;
    while (found.length && (!batch.length || count + size(found[0]!) <= BATCH)) {
      count += size(found[0]!);
      batch.push(found.shift()!);
    }
    const blocks = batch.map(({ block }) => block);
    const translated = await translator.translateBlocks(blocks, options, textOptions);
    for (const [index, { write }] of batch.entries()) write(translated[index]!.pieces);
    done += count;
    onProgress?.(done, all);
  }
  if (!language || own === null || root.getAttribute("lang") !== own) return;
  root.setAttribute("lang", language);
  if (RIGHT_TO_LEFT.test(language) || root.hasAttribute("dir"))
    root.setAttribute("dir", RIGHT_TO_LEFT.test(language) ? "rtl" : "ltr");
}

/** Finds the blocks of an element. */
export function pageBlocks(root: Element): PageBlock[] {
  const found: PageBlock[] = [];
  const walk = (parent: Element) => {
    let run: Node[] = [];
    const flush = () => {
      found.push(...runBlocks(parent, run));
      run = [];
    };
    for (const node of [...parent.childNodes]) {
      if (!isElement(node) || isInline(node)) run.push(node);
      else {
        flush();
        found.push(...attributeBlocks(node));
        if (!COPIED.has(nameOf(node)) && !isNotTranslated(node)) walk(node);
      }
    }
    flush();
  };
  if (!isNotTranslated(root)) {
    found.push(...attributeBlocks(root));
    walk(root);
  }
  return found;
}

const isElement = (node: Node): node is Element => node.nodeType === 1;
const nameOf = (element: Element): string => element.localName.toLowerCase();
const isNotTranslated = (element: Element): boolean =>
  element.matches("[translate=no i], .notranslate, [contenteditable]:not([contenteditable=false i])");
const isBlockLevel = (element: Element): boolean => !INLINE.has(nameOf(element));
const isInline = (element: Element): boolean =>
  !isBlockLevel(element) && (COPIED.has(nameOf(element)) || ![...element.querySelectorAll("*")].some(isBlockLevel));

/** The attributes of an element that people read. */
function attributeBlocks(element: Element): PageBlock[] {
  if (isNotTranslated(element)) return [];
  const own = Object.keys(OWN_ATTRIBUTES).filter((name) => element.matches(OWN_ATTRIBUTES[name]!));
  const general = ATTRIBUTES.filter((name) => name !== "title" || !element.matches("link, style"));
  return [...general, ...own].flatMap((name) => {
    const text = element.getAttribute(name) ?? "";
    if (!hasLetters(text)) return [];
    const block: Block = { text: valid(text), tags: [], items: [], isMarkup: true };
    const write: PageBlock["write"] = (pieces) => {
      if (element.getAttribute(name) === text) element.setAttribute(name, pieces.join(""));
    };
    return { block, write };
  });
}

/** The block of nodes side by side, if they have words, and those of the attributes in it. */
function runBlocks(parent: Element, run: readonly Node[]): PageBlock[] {
  const builder = new BlockBuilder();
  for (const node of run) builder.add(node);
  const { attributes, edges } = builder;
  const block = builder.block();
  if (!hasLetters(block.text)) return attributes;
  const elements = new Set(edges.filter(({ kind }) => kind === "start").map(({ node }) => node));
  const state = () => contents(run[0]!, run.length, elements);
  const before = state();
  const write = (pieces: readonly Piece[]) => {
    const now = state();
    if (now.length !== before.length || !now.every((seen, index) => isSame(seen, before[index]!))) return;
    const anchor = run.at(-1)!.nextSibling;
    const texts = now.flatMap(({ node }) => (node.nodeType === 3 ? [node as Text] : []));
    const open: Node[] = [parent];
    for (const piece of pieces) {
      const around = open.at(-1)!;
      const put = (node: Node) => around.insertBefore(node, around === parent ? anchor : null);
      if (typeof piece === "string") {
        const index = texts.findIndex(({ parentNode }) => parentNode === around);
        const [text = parent.ownerDocument.createTextNode("")] = index < 0 ? [] : texts.splice(index, 1);
        text.data = piece;
        put(text);
        continue;
      }
      const { node, kind } = edges[piece]!;
      if (kind === "end") open.pop();
      else put(node);
      if (kind === "start") open.push(node);
    }
    for (const text of texts) text.data = "";
  };
  return [...attributes, { block, write }];
}

/** A node of a block, where it is, and its text. */
interface Seen {
  node: Node;
  parent: Node | null;
  text: string | null;
}

const isSame = (one: Seen, other: Seen): boolean =>
  one.node === other.node && one.parent === other.parent && one.text === other.text;

/** Nodes side by side from a first one on, and those inside some elements. */
function contents(first: Node | null, count: number, elements: ReadonlySet<Node>): Seen[] {
  const found: Seen[] = [];
  for (let [node, left] = [first, count]; node && left; node = node.nextSibling, left--) {
    found.push({ node, parent: node.parentNode, text: node.nodeValue });
    if (elements.has(node)) found.push(...contents(node.firstChild, Number.POSITIVE_INFINITY, elements));
  }
  return found;
}

/** A text with U+FFFD in place of halves of characters, which no model reads, and as which they are shown. */
const valid = (text: string): string => text.replace(/\p{Surrogate}/gu, "\ufffd");

/** Collects the text, tags and items of a block. */
class BlockBuilder {
  /** Where nodes begin and end, by the numbers of the block. */
  readonly edges: { node: Node; kind: "start" | "end" | "alone" }[] = [];
  readonly attributes: PageBlock[] = [];
  private text = "";
  private readonly tags: Tag[] = [];
  private readonly items: Item[] = [];
  private readonly added = new Set<number>();
  /** Whether text that follows does not belong to the word before it. */
  private isApart = false;

  block(): Block {
    return { text: this.text, tags: this.tags, items: this.items, added: this.added, isMarkup: true };
  }

  add(node: Node, parent?: number): void {
    if (node.nodeType === 3) this.write(valid(node.nodeValue ?? ""));
    else if (!isElement(node)) this.alone(node, parent);
    else {
      this.attributes.push(...attributeBlocks(node));
      const name = nameOf(node);
      const isFootnote = isRaisedSign(node);
      if (isFootnote || COPIED.has(name) || isNotTranslated(node))
        this.item(node, name === "sup" && isFootnote ? "" : valid(node.textContent ?? ""), parent);
      else if (VOID.has(name)) {
        this.isApart ||= IMAGES.has(name);
        this.alone(node, parent);
      } else this.element(node, parent);
    }
  }

  private element(element: Element, parent?: number): void {
    const index = this.tags.length;
    const start: Tag = { offset: this.text.length, raw: this.edge(element, "start"), parent };
    this.tags.push(start);
    for (const child of [...element.childNodes]) this.add(child, index);
    start.partner = this.tags.length;
    this.tags.push({ offset: this.text.length, raw: this.edge(element, "end"), partner: index, parent });
  }

  private alone(node: Node, parent?: number): void {
    this.tags.push({ offset: this.text.length, raw: this.edge(node, "alone"), parent });
  }

  /** An element that is copied, and whose text the model may read; without text, it separates words as an image does. */
  private item(element: Element, text: string, parent?: number): void {
    if (isBlank(text)) {
      this.isApart = true;
      this.alone(element, parent);
      return;
    }
    this.write(text);
    const end = this.text.length;
    this.items.push({ start: end - text.length, end, text, raw: [this.edge(element, "alone")] });
  }

  private write(text: string): void {
    if (!text) return;
    // The model must not read `dog<img>runs` as a word.
    if (this.isApart && endsWithLetter(this.text) && startsWithLetter(text)) {
      this.added.add(this.text.length);
      this.text += " ";
    }
    this.isApart = false;
    this.text += text;
  }

  private edge(node: Node, kind: "start" | "end" | "alone"): number {
    return this.edges.push({ node, kind }) - 1;
  }
}

/** Whether an element is a footnote number, an exponent or an index: above or below the line, and without letters. */
function isRaisedSign(element: Element): boolean {
  const text = element.textContent ?? "";
  return ["sub", "sup"].includes(nameOf(element)) && !isBlank(text) && !hasLetters(text);
}
