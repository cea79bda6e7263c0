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

/** Asks a frame of the extension to translate, as the page itself, and returns what it answers within a second. */
async function asked({ address, data }: { address: string; data: unknown }): Promise<unknown> {
  const frame = document.createElement("iframe");
  frame.src = address;
  document.documentElement.append(frame);
  await new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  const { port1, port2 } = new MessageChannel();
  const answer = new Promise((resolve) => {
    port1.onmessage = (event) => resolve(event.data);
    setTimeout(() => resolve(null), 1000);
  });
  frame.contentWindow!.postMessage(data, "*", [port2]);
  port1.postMessage({ id: 1, method: "open", location: new URL("model/", address).href, keeps: false });
  const found = await answer;
  frame.remove();
  return found;
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
    const address = new URL("translator.html", background.url()).href;
    for (const data of ["serve", "", undefined, null, 0, {}, [], true])
      assert.equal(await page.evaluate(asked, { address, data }), null, `${data}`);
    await background.evaluate(async () => {
      const { chrome } = globalThis as unknown as { chrome: Chrome };
      const [tab] = await chrome.tabs.query({ url: "http://127.0.0.1/*" });
      chrome.action.onClicked.dispatch(tab);
    });
    await checkTranslated(page as Tab);
    assert.equal(await page.evaluate(asked, { address, data: "serve" }), null);
    assert.deepEqual(
      [...origins].filter((origin) => origin !== "null"),
      [site.origin],
    );
  } finally {
    await context.close();
  }
});
