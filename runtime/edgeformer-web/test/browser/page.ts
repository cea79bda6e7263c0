/** A page of another site, which the bookmarklet and the extension translate. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { openTranslator, translateText } from "edgeformer";
import { INT8, SENTENCES, says, serve, type Tab, temporary, textOf } from "./support.js";

const [first, second, third] = SENTENCES as [string, string, string];
const PAGE = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Page</title>
<h1>${first}</h1><p id="two"> ${second} <b>${third}</b></p><p id="kept" translate="no">${first}</p><pre>${first}</pre>`;

/** Serves the page. */
export function servePage(): ReturnType<typeof serve> {
  const folder = temporary();
  writeFileSync(join(folder, "index.html"), PAGE);
  return serve(folder);
}

/** Waits for the end, and checks that every text of the page has been translated, but not what is excluded. */
export async function checkTranslated(page: Tab): Promise<void> {
  await says(page, "#edgeformer-message", /Translated on this device/);
  const translator = await openTranslator(INT8);
  const found = await Promise.all([first, second, third].map((text) => translateText(translator, text)));
  assert.equal(await textOf(page, "h1"), found[0]);
  const inner = (selector: string) => document.querySelector(selector)!.innerHTML;
  assert.equal(await page.evaluate(inner, "#two"), ` ${found[1]} <b>${found[2]}</b>`);
  assert.equal(await page.evaluate((name) => document.documentElement.getAttribute(name), "lang"), "fr");
  assert.equal(await textOf(page, "#kept"), first);
  assert.equal(await textOf(page, "pre"), first);
}
