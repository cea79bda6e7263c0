/**
 * Whole pages, translated in place: the text of elements and the attributes that people read. Inline elements stay around
 * the words that are translated from theirs, and are moved, not made again, so that their listeners stay. Scripts, styles
 * and code, and what says `translate="no"` or has the class `notranslate`, stay as they are.
 *
 * Blocks are those of the Python package's `text/markup`, but that an inline element with block elements in it begins and
 * ends blocks itself.
 */
import type { CallOptions, Translator } from "../decoding/translation.js";
import type { Block, Item, Piece, Tag } from "./block.js";
import { endsWithLetter, hasLetters, isBlank, startsWithLetter } from "./patterns.js";
import type { TextOptions } from "./translator.js";

const names = (text: string): ReadonlySet<string> => new Set(text.split(" "));
/** Elements inside sentences; others end a sentence. */
const INLINE = names(
  "a abbr acronym b bdi bdo big cite code data del dfn em font g i img ins kbd label mark math nobr output q rp rt ruby " +
    "s samp small span strike strong sub sup svg time tt u var wbr x",
);
/** Elements whose content is not translated. */
const COPIED = names("code kbd math pre samp script style svg template textarea tt var");
/** Elements without content, and those of them that are shown between words. */
const VOID = names("area base br col embed hr img input link meta param source track wbr x");
const IMAGES = names("embed img input");
/** Attributes that people read: of any element, and of certain ones. */
const ATTRIBUTES = [
  "title",
  "aria-label",
  "aria-description",
  "aria-placeholder",
  "aria-roledescription",
  "aria-valuetext",
];
const OWN_ATTRIBUTES: Record<string, string> = {
  alt: "area, img, input",
  label: "optgroup, option, track",
  placeholder: "input, textarea",
  value: "input[type=button i], input[type=reset i], input[type=submit i]",
  content:
    "meta[name=description i], meta[property='og:description' i], meta[property='og:title' i], " +
    "meta[name='twitter:description' i], meta[name='twitter:title' i]",
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

/** A block of the page, and how its translation is put there. */
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
  if (!language || !root.hasAttribute("lang")) return;
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
        if (!COPIED.has(nameOf(node)) && !isMarked(node)) walk(node);
      }
    }
    flush();
  };
  if (!isMarked(root)) {
    found.push(...attributeBlocks(root));
    walk(root);
  }
  return found;
}

const isElement = (node: Node): node is Element => node.nodeType === 1;
const nameOf = (element: Element): string => element.localName.toLowerCase();
const isMarked = (element: Element): boolean =>
  element.getAttribute("translate")?.toLowerCase() === "no" || element.classList.contains("notranslate");
const isBlockLevel = (element: Element): boolean => !INLINE.has(nameOf(element));
const isInline = (element: Element): boolean =>
  !isBlockLevel(element) && (COPIED.has(nameOf(element)) || ![...element.querySelectorAll("*")].some(isBlockLevel));

/** The attributes of an element that people read. */
function attributeBlocks(element: Element): PageBlock[] {
  if (isMarked(element)) return [];
  const own = Object.keys(OWN_ATTRIBUTES).filter((name) => element.matches(OWN_ATTRIBUTES[name]!));
  const general = element.matches("link, style") ? ATTRIBUTES.slice(1) : ATTRIBUTES;
  return [...general, ...own].flatMap((name) => {
    const text = element.getAttribute(name) ?? "";
    if (!hasLetters(text)) return [];
    const block: Block = { text, tags: [], items: [], isMarkup: true };
    return { block, write: (pieces) => element.setAttribute(name, pieces.join("")) };
  });
}

/** The block of nodes side by side, if they have words, and those of the attributes in it. */
function runBlocks(parent: Element, run: readonly Node[]): PageBlock[] {
  const builder = new BlockBuilder();
  for (const node of run) builder.add(node);
  const { attributes } = builder;
  const block = builder.block();
  if (!hasLetters(block.text)) return attributes;
  const anchor = run.at(-1)!.nextSibling;
  const write = (pieces: readonly Piece[]) => {
    for (const node of run) parent.removeChild(node);
    const open: Element[] = [];
    const put = (node: Node) => (open.at(-1) ? open.at(-1)!.appendChild(node) : parent.insertBefore(node, anchor));
    for (const piece of pieces) {
      if (typeof piece === "string") {
        put(parent.ownerDocument.createTextNode(piece));
        continue;
      }
      const { node, kind } = builder.marks[piece]!;
      if (kind === "end") open.pop();
      else put(node);
      if (kind !== "start") continue;
      (node as Element).replaceChildren();
      open.push(node as Element);
    }
  };
  return [...attributes, { block, write }];
}

/** Collects the text, tags and items of a block. */
class BlockBuilder {
  /** What the marks of the block stand for. */
  readonly marks: { node: Node; kind: "start" | "end" | "alone" }[] = [];
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
    if (node.nodeType === 3) this.write(node.nodeValue ?? "");
    else if (!isElement(node)) this.alone(node, parent);
    else {
      this.attributes.push(...attributeBlocks(node));
      const name = nameOf(node);
      const isFootnote = isMark(node);
      if (isFootnote || COPIED.has(name) || isMarked(node))
        this.item(node, name === "sup" && isFootnote ? "" : (node.textContent ?? ""), parent);
      else if (VOID.has(name)) {
        this.isApart ||= IMAGES.has(name);
        this.alone(node, parent);
      } else this.element(node, parent);
    }
  }

  private element(element: Element, parent?: number): void {
    const index = this.tags.length;
    const start: Tag = { offset: this.text.length, mark: this.mark(element, "start"), parent };
    this.tags.push(start);
    for (const child of [...element.childNodes]) this.add(child, index);
    start.partner = this.tags.length;
    this.tags.push({ offset: this.text.length, mark: this.mark(element, "end"), partner: index, parent });
  }

  private alone(node: Node, parent?: number): void {
    this.tags.push({ offset: this.text.length, mark: this.mark(node, "alone"), parent });
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
    this.items.push({ start: end - text.length, end, text, raw: [this.mark(element, "alone")] });
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

  private mark(node: Node, kind: "start" | "end" | "alone"): number {
    return this.marks.push({ node, kind }) - 1;
  }
}

/** Whether an element is a footnote mark, an exponent or an index: above or below the line, and without letters. */
function isMark(element: Element): boolean {
  const text = element.textContent ?? "";
  return ["sub", "sup"].includes(nameOf(element)) && !isBlank(text) && !hasLetters(text);
}
