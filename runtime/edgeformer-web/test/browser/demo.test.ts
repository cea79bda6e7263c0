import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { openTranslator, type Translator } from "edgeformer";
import type { Browser, BrowserContext, Page } from "playwright-core";
import {
  assemble,
  chromium,
  INT8,
  LAUNCH,
  ONNXRUNTIME,
  SENTENCES,
  serve,
  status,
  temporary,
  translateOnPage,
  watch,
} from "./support.js";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const EN_FR = fileURLToPath(new URL("../../../../models/en-fr", import.meta.url));
/** A file of texts and their translations by Python: `[{text, ids}]`, by beam search. */
const { EXPECTED } = process.env;

let folder: string;
let browser: Browser;
let server: Awaited<ReturnType<typeof serve>>;
let context: BrowserContext;
let page: Page;

before(async () => {
  folder = assemble("demo");
  browser = await chromium.launch(LAUNCH);
  server = await serve(folder);
  context = await browser.newContext();
  page = await context.newPage();
});
after(async () => {
  await browser?.close();
  await server?.close();
});

/** The greedy translation in Node. */
async function expected(text: string): Promise<string> {
  const translator = await openTranslator(INT8);
  return (await translator.translate(text, { beamSize: 1 })).text;
}

test("the page translates with a model of its server, and asks nobody else", async () => {
  const { origins, problems } = watch(context);
  await page.goto(server.origin);
  assert.match(await status(page, /Ready/), /from English to French, 0.05 million parameters/);
  assert.equal(await translateOnPage(page, SENTENCES[0]!), await expected(SENTENCES[0]!));
  assert.equal(
    await translateOnPage(page, `${SENTENCES[1]} ${SENTENCES[2]}\n\n${SENTENCES[3]}`),
    `${await expected(SENTENCES[1]!)} ${await expected(SENTENCES[2]!)}\n\n${await expected(SENTENCES[3]!)}`,
  );
  assert.deepEqual([...origins], [server.origin]);
  assert.deepEqual(problems, []);
});

test("a text can be translated, and given up, with the keyboard", async () => {
  await page.fill("#source", `${SENTENCES.join("\n")}\n`.repeat(50));
  await page.press("#source", "Control+Enter");
  await page.locator("#target[aria-busy=true]").waitFor();
  await page.focus("#stop");
  await page.keyboard.press("Enter");
  await page.locator("#target[aria-busy=false]").waitFor();
  const lines = ((await page.textContent("#target")) ?? "").split("\n").length;
  assert.ok(lines < 50 * SENTENCES.length);
});

for (const colorScheme of ["light", "dark"] as const) {
  test(`axe finds nothing in ${colorScheme} colors`, async () => {
    await page.emulateMedia({ colorScheme });
    await page.locator("details").evaluate((element) => element.setAttribute("open", ""));
    await translateOnPage(page, SENTENCES[0]!);
    await page.evaluate(AXE);
    const violations = await page.evaluate(async () => {
      const { axe } = globalThis as unknown as { axe: typeof import("axe-core") };
      return (await axe.run()).violations.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html }) => html) }));
    });
    assert.deepEqual(violations, []);
  });
}

test("texts are translated as in Python", { skip: EXPECTED ? false : "EXPECTED names no file" }, async () => {
  const cases: { text: string; ids: number[] }[] = JSON.parse(readFileSync(EXPECTED!, "utf8"));
  const found = await page.evaluate(
    async ([address, texts]) => {
      const { openWorkerTranslator } = (await import(address)) as typeof import("edgeformer");
      const translator = await openWorkerTranslator("model/");
      const translations = await translator.translate(texts, { beamSize: 4 });
      translator.close();
      return translations.map(({ text, hypotheses }) => ({ text, ids: hypotheses[0]!.ids }));
    },
    [`${server.origin}/edgeformer/dist/index.js`, cases.map(({ text }) => text)] as const,
  );
  assert.equal(cases.length, 200);
  assert.deepEqual(
    found.map(({ ids }) => ids),
    cases.map(({ ids }) => ids),
  );
});

test("memory is bounded over a thousand sentences", async () => {
  const session = await browser.newBrowserCDPSession();
  const megabytes = async () => {
    const collect = () => (globalThis as unknown as { gc(): void }).gc();
    await page.evaluate(collect);
    for (const worker of page.workers()) await worker.evaluate(collect);
    const { processInfo } = await session.send("SystemInfo.getProcessInfo");
    const renderers = processInfo.filter(({ type }) => type === "renderer");
    const resident = renderers.map(
      ({ id }) => /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${id}/status`, "utf8"))![1],
    );
    return resident.reduce((sum, each) => sum + Number(each) / 1024, 0);
  };
  const translate = (texts: string[]) =>
    page.evaluate(
      async ([address, sentences]) => {
        const { openWorkerTranslator } = (await import(address)) as typeof import("edgeformer");
        const kept = globalThis as { translator?: Translator };
        kept.translator ??= await openWorkerTranslator("model/");
        for (const sentence of sentences) for await (const step of kept.translator.translateTokens(sentence)) void step;
      },
      [`${server.origin}/edgeformer/dist/index.js`, texts] as const,
    );
  const many = (count: number) => Array.from({ length: count }, (_, i) => SENTENCES[i % SENTENCES.length]!);
  await translate(many(500));
  const start = await megabytes();
  await translate(many(1000));
  const growth = (await megabytes()) - start;
  assert.ok(growth < 16, `the page has grown by ${growth.toFixed(1)} MiB`);
});

test("bundles of the visitor are opened from a folder, an archive and an address", async () => {
  const greedy = await expected(SENTENCES[4]!);
  const zip = join(temporary(), "own.zip");
  execFileSync("python3", ["-m", "zipfile", "-c", zip, INT8]);
  const other = await serve(INT8);
  const ways = [
    () => page.setInputFiles("#folder", INT8),
    () => page.setInputFiles("#archive", zip),
    async () => {
      await page.fill("#address", `${other.origin}/`);
      await page.press("#address", "Enter");
    },
  ];
  for (const open of ways) {
    await open();
    await status(page, /Ready/);
    await page.locator("#translate:enabled").waitFor();
    assert.equal(await translateOnPage(page, SENTENCES[4]!), greedy);
  }
  await other.close();
});

test("words that belong together are marked", {
  skip: ONNXRUNTIME ? false : "ONNXRUNTIME names no folder",
}, async () => {
  const other = await serve(EN_FR);
  await page.fill("#address", `${other.origin}/`);
  await page.press("#address", "Enter");
  await status(page, /Ready: from English to French, 4.7 million parameters/);
  assert.equal(await translateOnPage(page, "My brother has two dogs."), "Mon frère a deux chiens.");
  for (const [word, partner] of [
    ["deux", "two"],
    ["frère", "brother"],
  ] as const) {
    await page.locator("#target span span", { hasText: word }).hover();
    const marked = (await page.locator(".together").allTextContents()).map((text) => text.trim());
    assert.deepEqual(marked.sort(), [partner, word].sort());
  }
  await page.click("#default-model");
  await page.locator("#translate:enabled").waitFor();
  await page.check("#aligns"); // ONNX Runtime is loaded for the weights, while the kernels translate
  assert.equal(await translateOnPage(page, SENTENCES[0]!), await expected(SENTENCES[0]!));
  assert.ok((await page.locator("#words span").count()) > 5);
  await page.uncheck("#aligns");
  await other.close();
});

test("a damaged bundle is refused with a sentence", async () => {
  const damaged = temporary();
  cpSync(INT8, damaged, { recursive: true });
  const weights = readFileSync(join(INT8, "weights.bin"));
  weights[1000]! ^= 1;
  writeFileSync(join(damaged, "weights.bin"), weights);
  const other = await serve(damaged);
  await page.evaluate(async (address) => {
    const { clearStorage } = (await import(address)) as typeof import("edgeformer");
    await clearStorage(); // else, the undamaged weights are read from there
  }, `${server.origin}/edgeformer/dist/index.js`);
  await page.fill("#address", other.origin);
  await page.press("#address", "Enter");
  assert.match(await status(page, /damaged/), /`weights.bin` does not match its SHA-256\. Copy or export it again\./);
  assert.ok(await page.isDisabled("#translate"));
  await other.close();
});

for (const bundle of [INT8, ...(ONNXRUNTIME ? [EN_FR] : [])]) {
  test(`the page works without a connection after the first visit, with ${basename(bundle)}`, async () => {
    const visitor = await browser.newContext();
    const own = await serve(assemble("demo", bundle));
    const visit = await visitor.newPage();
    await visit.goto(own.origin);
    await status(visit, /Ready/);
    await visit.evaluate(async () => void (await navigator.serviceWorker.ready));
    await own.close();
    await visit.reload();
    await status(visit, /Ready/);
    const text = bundle === INT8 ? await expected(SENTENCES[5]!) : "Mon frère a deux chiens.";
    assert.equal(await translateOnPage(visit, bundle === INT8 ? SENTENCES[5]! : "My brother has two dogs."), text);
    await visitor.close();
  });
}
