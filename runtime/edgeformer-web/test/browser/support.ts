/** A demo page that is put together and served, and Chromium. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type BrowserContext, chromium, type Page } from "playwright-core";
import { INT8 } from "../support.js";

export { INT8, SENTENCES } from "../support.js";

/** The folder of the package `onnxruntime-web`, if it is installed. */
export const { ONNXRUNTIME } = process.env;

const ASSEMBLE = fileURLToPath(new URL("../../examples/assemble.mjs", import.meta.url));
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
const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** How Chromium is started; `CHROMIUM` says where it is. */
export const LAUNCH = {
  executablePath: process.env.CHROMIUM ?? PLACES.find((path) => existsSync(path)) ?? "chromium",
  args: ["--no-sandbox", "--js-flags=--expose-gc"],
};

export { chromium };

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
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}

/** What a page and its workers asked for, and what went wrong in it. */
export function watch(context: BrowserContext): { origins: Set<string>; problems: string[] } {
  const origins = new Set<string>();
  const problems: string[] = [];
  context.on("request", (request) => origins.add(new URL(request.url()).origin));
  context.on("weberror", (error) => problems.push(error.error().message));
  context.on("console", (message) => {
    if (message.type() === "error") problems.push(`${message.text()} ${message.location().url}`);
  });
  return { origins, problems };
}

/** Waits until the page says something that matches. */
export async function status(page: Page, pattern: RegExp): Promise<string> {
  await page.locator("#status", { hasText: pattern }).waitFor();
  return (await page.textContent("#status")) ?? "";
}

/** Translates a text with the page's button, and returns the translation. */
export async function translateOnPage(page: Page, text: string): Promise<string> {
  await page.fill("#source", text);
  await page.click("#translate");
  await page.locator("#confidence", { hasText: /Confidence \d+ %, \d+ tokens/ }).waitFor();
  return (await page.textContent("#target")) ?? "";
}
