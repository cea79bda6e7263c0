import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { chromium } from "playwright-core";
import { checkTranslated, servePage } from "./page.js";
import { assemble, LAUNCH, type Tab, temporary, watch } from "./support.js";

/** What the test uses of an extension's interface. */
interface Chrome {
  tabs: { query(query: { url: string }): Promise<object[]> };
  action: { onClicked: { dispatch(tab: object | undefined): void } };
}

test("the extension translates a page, and asks no server", async () => {
  const site = await servePage();
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
    await checkTranslated(page as Tab);
    assert.deepEqual(
      [...origins].filter((origin) => origin !== "null"),
      [site.origin],
    );
  } finally {
    await context.close();
  }
});
