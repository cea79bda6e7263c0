/** A demo page that is put together and served, and the browser that `BROWSER` names, Chromium by default. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type BrowserContext, chromium, firefox, type Page } from "playwright-core";
import { INT8 } from "../support.js";
import { openWebKit } from "./webkit.js";

export { INT8, SENTENCES } from "../support.js";

/** The folder of the package `onnxruntime-web`, if it is installed. */
export const { ONNXRUNTIME } = process.env;
export const { BROWSER = "chromium" } = process.env;

const ASSEMBLE = fileURLToPath(new URL("../../../examples/assemble.mjs", import.meta.url));
const TYPES: Record<string, string> = {
  ".css": "text/css",
  ".html": "text/html",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".wasm": "application/wasm",
  ".webmanifest": "application/manifest+json",
};
const PROGRAMS: Record<string, string[]> = {
  chromium: ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"],
  firefox: ["/usr/bin/firefox-esr", "/usr/bin/firefox"],
  webkit: ["/usr/lib/x86_64-linux-gnu/webkit2gtk-4.1/MiniBrowser"],
};

/** How the browser is started; `PROGRAM` says where it is. */
export const LAUNCH = {
  executablePath: process.env.PROGRAM ?? PROGRAMS[BROWSER]!.find((path) => existsSync(path)) ?? BROWSER,
  args: BROWSER === "chromium" ? ["--no-sandbox", "--js-flags=--expose-gc"] : [],
};

/** What every browser can do with a page, as in Playwright. */
export interface Tab {
  goto(address: string): Promise<unknown>;
  reload(): Promise<unknown>;
  evaluate<R, A>(run: (given: A) => R | Promise<R>, given: A): Promise<R>;
  evaluate<R = unknown>(run: string): Promise<R>;
  fill(selector: string, text: string): Promise<void>;
  click(selector: string): Promise<void>;
  press(selector: string, key: "Enter" | "Control+Enter"): Promise<void>;
  hover(selector: string): Promise<void>;
}

/** A page of a browser that has just been started. */
export interface Opened {
  tab: Tab;
  /** What Playwright knows of it; undefined in WebKit, which is driven by WebDriver. */
  page: Page | undefined;
  close(): Promise<void>;
}

export async function open(): Promise<Opened> {
  if (BROWSER === "webkit") return { ...(await openWebKit(LAUNCH.executablePath)), page: undefined };
  const browser =
    BROWSER === "firefox" ? await firefox.launch({ ...LAUNCH, channel: "moz-firefox" }) : await chromium.launch(LAUNCH);
  const page = await browser.newPage();
  return { tab: page as Tab, page, close: () => browser.close() };
}

/** An empty folder. */
export function temporary(): string {
  return mkdtempSync(join(tmpdir(), "edgeformer-"));
}

/** Puts the demo page or the extension together, and returns its folder. */
export function assemble(what: "demo" | "extension", bundle = INT8): string {
  const folder = temporary();
  execFileSync(process.execPath, [ASSEMBLE, what, folder, bundle, ...(ONNXRUNTIME ? [ONNXRUNTIME] : [])]);
  return folder;
}

/** Serves a folder as a site of static files does that other sites may read. */
export async function serve(folder: string): Promise<{ origin: string; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "", "http://127.0.0.1");
    const path = join(folder, pathname.endsWith("/") ? `${pathname}index.html` : pathname);
    response.setHeader("Access-Control-Allow-Origin", "*");
    response.setHeader("Content-Type", TYPES[extname(path)] ?? "application/octet-stream");
    if (statSync(path, { throwIfNoEntry: false })?.isFile()) response.end(readFileSync(path));
    else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  server.unref();
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}

/** What a page and its workers asked for, and what went wrong in it. */
export function watch(context: BrowserContext | undefined): { origins: Set<string>; problems: string[] } {
  const origins = new Set<string>();
  const problems: string[] = [];
  context?.on("request", (request) => origins.add(new URL(request.url()).origin));
  context?.on("weberror", (error) => problems.push(error.error().message));
  context?.on("console", (message) => {
    if (message.type() === "error") problems.push(`${message.text()} ${message.location().url}`);
  });
  return { origins, problems };
}

/** The text of an element. */
export function textOf(tab: Tab, selector: string): Promise<string> {
  return tab.evaluate((wanted) => document.querySelector(wanted)?.textContent ?? "", selector);
}

/** Waits until something is so, and says after 30 seconds what it is instead. */
export async function until<T>(current: () => Promise<T>, isSo: (found: T) => boolean): Promise<T> {
  for (const end = Date.now() + 30_000; ; ) {
    const found = await current();
    if (isSo(found)) return found;
    assert.ok(Date.now() < end, `after 30 seconds: ${JSON.stringify(found)}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Waits until an element's text matches. */
export function says(tab: Tab, selector: string, pattern: RegExp): Promise<string> {
  return until(
    () => textOf(tab, selector),
    (text) => pattern.test(text),
  );
}

/** Whether an element that a selector describes is there. */
export function has(tab: Tab, selector: string): Promise<boolean> {
  return tab.evaluate((wanted) => document.querySelector(wanted) !== null, selector);
}

/** Waits until the page says something that matches, and, if it is ready, lets a text be translated. */
export async function status(tab: Tab, pattern: RegExp): Promise<string> {
  return says(tab, "#status", pattern);
}

/** Translates a text with the page's button, and returns the translation. */
export async function translateOnPage(tab: Tab, text: string): Promise<string> {
  await tab.fill("#source", text);
  await tab.click("#translate");
  await says(tab, "#confidence", /Confidence \d+ %, \d+ tokens/);
  return textOf(tab, "#target");
}

/** Chooses files in a field, as a visitor does. Browsers let no program choose a folder, except Chromium. */
export function choose(tab: Tab, selector: string, addresses: readonly string[]): Promise<void> {
  return tab.evaluate(
    async ([field, given]) => {
      const chosen = new DataTransfer();
      for (const address of given)
        chosen.items.add(new File([await (await fetch(address)).blob()], address.split("/").at(-1)!));
      const input = document.querySelector<HTMLInputElement>(field)!;
      input.files = chosen.files;
      input.dispatchEvent(new Event("change"));
    },
    [selector, addresses] as const,
  );
}
