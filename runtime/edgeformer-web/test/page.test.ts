import assert from "node:assert/strict";
import { test } from "node:test";
import { translatePage } from "../src/text/page.js";
import { type Model, pageTranslator, parseHTML } from "./models.js";
import { random } from "./support.js";

const WORDS = "old dog runs near green river while small cat sleeps under warm stone".split(" ");
/** A model whose translation differs from its source in case only, so that it is seen what was translated. */
const LOUD: Model = (words) => words.map((word) => word.toUpperCase());
const PAGES = 60;

/** A page of some batches, with elements inside of sentences, attributes, images and comments. */
function pageOf(next: () => number): string {
  const pick = () => WORDS[Math.floor(next() * WORDS.length)]!;
  const words = (count: number) => Array.from({ length: count }, pick).join(" ");
  const parts = [
    () => `<p>${words(30)} <b>${words(3)} <i>${words(2)}</i></b> ${words(9)}.</p>`,
    () =>
      `<div title="${words(3)}">${words(20)}<h2>${words(9)}</h2>${words(20)} <a href="#" title="${words(2)}">${pick()}</a></div>`,
    () =>
      `<ul><li>${words(20)}</li><li><u>${words(20)}</u></li><!-- --><li>${words(9)}<img alt="${words(2)}">${words(9)}</li></ul>`,
    () => `<p>${words(9)} <code>${pick()}</code> ${words(9)} <span translate="no">${words(2)}</span> ${words(20)}</p>`,
  ];
  return Array.from({ length: 24 }, () => parts[Math.floor(next() * parts.length)]!()).join("");
}

/** A page, and what it knows of itself. */
interface Tree {
  root: Element;
  /** The text nodes that it had at first. */
  texts: Text[];
}

function treeOf(html: string): Tree {
  const { document } = parseHTML(`<html><body><main>${html}</main></body></html>`);
  const root = document.querySelector("main")!;
  const texts: Text[] = [];
  const walk = (node: Node) => {
    if (node.nodeType === 3) texts.push(node as Text);
    for (const child of [...node.childNodes]) walk(child);
  };
  walk(root);
  return { root, texts };
}

/** What a page may do with an element and another one. */
const CHANGES: ((element: Element, other: Element, name: string, tree: Tree, index: number) => void)[] = [
  (element, _, name) => element.append(` ${name}`),
  (element, _, name) => element.prepend(`${name} `),
  (element, _, name) => element.after(` ${name} `),
  (element) => element.remove(),
  (element) => element.firstChild?.remove(),
  (element) => element.lastChild?.remove(),
  (element, _, name) => {
    element.textContent = name;
  },
  (element, _, name) => {
    element.innerHTML = `${name} <b>${name}</b>`;
  },
  (element, _, name) => element.setAttribute("title", name),
  (element) => element.removeAttribute("title"),
  (element, other) => element.contains(other) || other.append(element),
  (element, other) => element.contains(other) || other.before(element),
  (element) => element.replaceWith(element.cloneNode(true)),
  (element) => element.replaceWith(...element.childNodes),
  (element, _, name) => element.insertAdjacentHTML("beforebegin", `<em>${name}</em>`),
  (element, _, name) => element.insertAdjacentHTML("afterend", `<section>${name}</section>`),
  (element) => element.normalize(),
  (_, __, name, { texts }, index) => {
    texts[index % texts.length]!.data = name;
  },
  (_, __, ___, { texts }, index) => texts[index % texts.length]!.remove(),
];

/** Changes pages of the same shape in the same way. */
function change(trees: readonly Tree[], next: () => number, name: string): void {
  const [kind, one, other, index] = Array.from({ length: 4 }, () => Math.floor(next() * 2 ** 20)) as number[];
  for (const tree of trees) {
    const elements = [...tree.root.querySelectorAll(":not(img)")];
    if (!elements.length) return;
    const [element, second] = [one!, other!].map((number) => elements[number % elements.length]!);
    CHANGES[kind! % CHANGES.length]!(element!, second!, name, tree, index!);
  }
}

test("whatever a page does while it is translated, and afterwards, has the same effect as without", async () => {
  let translated = 0;
  for (let seed = 0; seed < PAGES; seed++) {
    const next = random(seed);
    const html = pageOf(next);
    const [page, twin] = [treeOf(html), treeOf(html)];
    const translator = pageTranslator(LOUD);
    let count = 0;
    const changed = (times: number) => {
      for (let time = 0; time < times; time++) change([page, twin], next, `page${seed}x${count++}`);
    };
    const slow: typeof translator.translateBlocks = async (blocks, ...rest) => {
      changed(3);
      const found = await pageTranslator(LOUD).translateBlocks(blocks, ...rest);
      changed(3);
      return found;
    };
    await translatePage({ manifest: translator.manifest, translateBlocks: slow }, page.root);
    changed(10);
    const [found, expected] = [page, twin].map(({ root }) => root.innerHTML.toLowerCase().replace(/\s/g, ""));
    assert.equal(found, expected, `page ${seed}`);
    for (const [name] of twin.root.innerHTML.matchAll(/page\d+x\d+/g)) assert.ok(page.root.innerHTML.includes(name));
    translated += page.root.innerHTML.match(/[A-Z]{3,}/g)?.length ?? 0;
  }
  assert.ok(translated > 300 * PAGES, `${translated} words are translated`);
});

test("what a visitor may be writing is not translated", async () => {
  const { root } = treeOf(
    '<div contenteditable>my dog</div><p contenteditable="TRUE">my dog</p><p contenteditable="false">my dog</p><textarea>my dog</textarea>',
  );
  await translatePage(pageTranslator(LOUD), root);
  assert.deepEqual(
    [...root.children].map(({ textContent }) => textContent),
    ["my dog", "my dog", "MY DOG", "my dog"],
  );
});

test("a page with half a character is translated", async () => {
  const { root } = treeOf("<p>old dog</p><p>x</p><p>green cat</p>");
  root.children[1]!.textContent = "small river \ud83d";
  root.children[1]!.setAttribute("title", "\ude00 stone");
  const texts: string[] = [];
  const translator = pageTranslator((words) => {
    texts.push(...words);
    return LOUD(words);
  });
  await translatePage(translator, root);
  assert.ok(texts.length > 6 && texts.every((text) => !/\p{Surrogate}/u.test(text)));
  assert.equal(root.children[2]!.textContent, "GREEN CAT");
});
