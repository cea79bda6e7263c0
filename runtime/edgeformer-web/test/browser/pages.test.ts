import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { openTranslator, type Translator, translateText } from "edgeformer";
import type { Page } from "playwright-core";
import { assemble, chromium, INT8, LAUNCH, SENTENCES, serve, temporary, watch } from "./support.js";

const [first, second, third] = SENTENCES as [string, string, string];
const PAGE = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Page</title>
<h1>${first}</h1><p id="two"> ${second} <b>${third}</b></p><p id="kept" translate="no">${first}</p><pre>${first}</pre>`;

/** What the test uses of an extension's interface. */
interface Chrome {
  tabs: { query(query: { url: string }): Promise<object[]> };
  action: { onClicked: { dispatch(tab: object | undefined): void } };
}

let site: Awaited<ReturnType<typeof serve>>;
let translator: Translator;
before(async () => {
  const folder = temporary();
  writeFileSync(join(folder, "index.html"), PAGE);
  site = await serve(folder);
  translator = await openTranslator(INT8);
});
after(() => site.close());

/** Waits for the end, and checks that every text of the page has been translated, but not what is excluded. */
async function checkTranslated(page: Page): Promise<void> {
  await page.locator("#edgeformer-message", { hasText: "Translated on this device" }).waitFor();
  const found = await Promise.all([first, second, third].map((text) => translateText(translator, text)));
  assert.equal(await page.textContent("h1"), found[0]);
  assert.equal(await page.innerHTML("#two"), ` ${found[1]} <b>${found[2]}</b>`);
  assert.equal(await page.getAttribute("html", "lang"), "fr");
  assert.equal(await page.textContent("#kept"), first);
  assert.equal(await page.textContent("pre"), first);
}

test("the bookmarklet translates another page, with files of the demo alone", async () => {
  const demo = await serve(assemble("demo"));
  const browser = await chromium.launch(LAUNCH);
  try {
    const page = await browser.newPage();
    await page.goto(demo.origin);
    const href = (await page.getAttribute("#bookmarklet", "href"))!;
    assert.ok(href.startsWith("javascript:"));
    const { origins } = watch(page.context());
    await page.goto(site.origin);
    await page.evaluate(href.slice("javascript:".length));
    await checkTranslated(page);
    assert.deepEqual([...origins].filter((origin) => origin !== "null").sort(), [demo.origin, site.origin].sort());
  } finally {
    await browser.close();
    await demo.close();
  }
});

test("the extension translates a page, and asks no server", async () => {
  const folder = assemble("extension");
  const path = join(folder, "manifest.json");
  // A click on the button of the browser gives access to a page, but no program can click there.
  const manifest = { ...JSON.parse(readFileSync(path, "utf8")), host_permissions: ["http://127.0.0.1/*"] };
  writeFileSync(path, JSON.stringify(manifest));
  const args = [...LAUNCH.args, `--disable-extensions-except=${folder}`, `--load-extension=${folder}`];
  const context = await chromium.launchPersistentContext(temporary(), {
    ...LAUNCH,
    args,
    ignoreDefaultArgs: ["--disable-extensions"],
  });
  try {
    const { origins } = watch(context);
    const background = context.serviceWorkers()[0] ?? (await context.waitForEvent("serviceworker"));
    const page = await context.newPage();
    await page.goto(site.origin);
    await background.evaluate(async () => {
      const { chrome } = globalThis as unknown as { chrome: Chrome };
      const [tab] = await chrome.tabs.query({ url: "http://127.0.0.1/*" });
      chrome.action.onClicked.dispatch(tab);
    });
    await checkTranslated(page);
    assert.deepEqual(
      [...origins].filter((origin) => origin !== "null"),
      [site.origin],
    );
  } finally {
    await context.close();
  }
});
