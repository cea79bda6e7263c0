import assert from "node:assert/strict";
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { openTranslator, type Translator } from "edgeformer";
import { checkTranslated, servePage } from "./page.js";
import {
  assemble,
  BROWSER,
  choose,
  has,
  INT8,
  ONNXRUNTIME,
  type Opened,
  open,
  SENTENCES,
  serve,
  status,
  type Tab,
  temporary,
  textOf,
  translateOnPage,
  until,
  watch,
} from "./support.js";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const EN_FR = fileURLToPath(new URL("../../../../../models/en-fr", import.meta.url));
const FP32 = fileURLToPath(new URL("../../../../../tests/runtime/bundles/fp32", import.meta.url));
/** The package, seen from the page. */
const PACKAGE = "./edgeformer/dist/index.js";
/** A file of texts and their translations by Python: `[{text, ids}]`, by beam search. */
const { EXPECTED } = process.env;

let server: Awaited<ReturnType<typeof serve>>;
let opened: Opened;
let page: Tab;

before(async () => {
  server = await serve(assemble("demo"));
  opened = await open();
  page = opened.tab;
});
after(() => opened?.close());

/** The greedy translation in Node. */
async function expected(text: string): Promise<string> {
  const translator = await openTranslator(INT8);
  return (await translator.translate(text, { beamSize: 1 })).text;
}

test("the page translates with a model of its server, and asks nobody else", async () => {
  const { origins, problems } = watch(opened.page?.context());
  await page.goto(server.origin);
  assert.match(await status(page, /Ready/), /from English to French, 0.05 million parameters/);
  assert.equal(await translateOnPage(page, SENTENCES[0]!), await expected(SENTENCES[0]!));
  assert.equal(
    await translateOnPage(page, `${SENTENCES[1]} ${SENTENCES[2]}\n\n${SENTENCES[3]}`),
    `${await expected(SENTENCES[1]!)} ${await expected(SENTENCES[2]!)}\n\n${await expected(SENTENCES[3]!)}`,
  );
  if (opened.page) assert.deepEqual([...origins], [server.origin]);
  assert.deepEqual(problems, []);
});

test("a text can be translated, and given up, with the keyboard", async () => {
  await page.fill("#source", `${SENTENCES.join("\n")}\n`.repeat(50));
  await page.press("#source", "Control+Enter");
  await until(() => has(page, "#target[aria-busy=true]"), Boolean);
  await page.press("#stop", "Enter");
  await until(() => has(page, "#target[aria-busy=false]"), Boolean);
  const lines = (await textOf(page, "#target")).split("\n").length;
  assert.ok(lines < 50 * SENTENCES.length);
});

for (const colorScheme of BROWSER === "webkit" ? (["light"] as const) : (["light", "dark"] as const)) {
  test(`axe finds nothing in ${colorScheme} colors`, async () => {
    await opened.page?.emulateMedia({ colorScheme });
    await page.evaluate((selector) => document.querySelector(selector)!.setAttribute("open", ""), "details");
    await translateOnPage(page, SENTENCES[0]!);
    await page.evaluate(AXE);
    const violations = await page.evaluate(async (context) => {
      const { axe } = globalThis as unknown as { axe: typeof import("axe-core") };
      return (await axe.run(context)).violations.map(({ id, nodes }) => ({ id, nodes: nodes.map(({ html }) => html) }));
    }, "html");
    assert.deepEqual(violations, []);
  });
}

for (const wasm of [undefined, "edgeformer_kernels.wasm"]) {
  const skip = EXPECTED ? false : "EXPECTED names no file";
  test(`texts are translated as in Python, by ${wasm ?? "the module that the browser chooses"}`, { skip }, async () => {
    const cases: { text: string; ids: number[] }[] = JSON.parse(readFileSync(EXPECTED!, "utf8"));
    const found = await page.evaluate(
      async ([address, own, texts]) => {
        const { openWorkerTranslator } = (await import(address)) as typeof import("edgeformer");
        const translator = await openWorkerTranslator("model/", { wasm: own ?? undefined });
        const translations = await translator.translate(texts, { beamSize: 4 });
        translator.close();
        return translations.map(({ hypotheses }) => hypotheses[0]!.ids);
      },
      [PACKAGE, wasm ? `edgeformer/wasm/${wasm}` : null, cases.map(({ text }) => text)] as const,
    );
    assert.equal(cases.length, 200);
    assert.deepEqual(
      found,
      cases.map(({ ids }) => ids),
    );
  });
}

test("memory is bounded over a thousand sentences", {
  skip: BROWSER === "chromium" ? false : "only Chromium says which processes are a page's",
}, async () => {
  const own = opened.page!;
  const session = await own.context().browser()!.newBrowserCDPSession();
  const megabytes = async () => {
    const collect = () => (globalThis as unknown as { gc(): void }).gc();
    await own.evaluate(collect);
    for (const worker of own.workers()) await worker.evaluate(collect);
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
      [PACKAGE, texts] as const,
    );
  const many = (count: number) => Array.from({ length: count }, (_, i) => SENTENCES[i % SENTENCES.length]!);
  await translate(many(500));
  const start = await megabytes();
  await translate(many(1000));
  const growth = (await megabytes()) - start;
  assert.ok(growth < 16, `the page has grown by ${growth.toFixed(1)} MiB`);
});

test("bundles of the visitor are opened from a folder and an address", async () => {
  const greedy = await expected(SENTENCES[4]!);
  const other = await serve(INT8);
  const ways = [
    () =>
      choose(
        page,
        "#folder",
        readdirSync(INT8).map((name) => `${other.origin}/${name}`),
      ),
    ...(BROWSER === "chromium" ? [() => opened.page!.setInputFiles("#folder", INT8)] : []),
    async () => {
      await page.fill("#address", `${other.origin}/`);
      await page.press("#address", "Enter");
    },
  ];
  for (const open of ways) {
    await open();
    await status(page, /Ready/);
    assert.equal(await translateOnPage(page, SENTENCES[4]!), greedy);
  }
  await other.close();
});

test("words that belong together are marked", async () => {
  const other = await serve(EN_FR);
  await page.fill("#address", `${other.origin}/`);
  await page.press("#address", "Enter");
  await status(page, /Ready: from English to French, 4.7 million parameters/);
  assert.equal(await translateOnPage(page, "My brother has two dogs."), "Mon frère a deux chiens.");
  for (const [word, partner] of [
    ["deux", "two"],
    ["frère", "brother"],
  ] as const) {
    await page.evaluate((wanted) => {
      const tokens = [...document.querySelectorAll("#target span span")];
      tokens.find(({ textContent }) => textContent!.includes(wanted))!.id = wanted;
    }, word);
    await page.hover(`#${word}`);
    const marked = await page.evaluate(
      (selector) => [...document.querySelectorAll(selector)].map(({ textContent }) => textContent!.trim()),
      ".together",
    );
    assert.deepEqual(marked.sort(), [partner, word].sort());
  }
  await page.click("#default-model");
  await status(page, /Ready/);
  assert.equal(await translateOnPage(page, SENTENCES[0]!), await expected(SENTENCES[0]!));
  assert.ok(await has(page, "#words span:nth-child(6)"));
  await other.close();
});

test("a damaged bundle is refused with a sentence", async () => {
  const damaged = temporary();
  cpSync(INT8, damaged, { recursive: true });
  const weights = readFileSync(join(INT8, "weights.bin"));
  weights[1000]! ^= 1;
  writeFileSync(join(damaged, "weights.bin"), weights);
  const other = await serve(damaged);
  await page.click("#forget"); // else, the undamaged weights are read from the browser's storage
  await status(page, /Downloaded models are deleted/);
  await page.fill("#address", other.origin);
  await page.press("#address", "Enter");
  assert.match(await status(page, /damaged/), /`weights.bin` does not match its SHA-256\. Copy or export it again\./);
  assert.ok(await has(page, "#translate:disabled"));
  await other.close();
});

const RUNTIME = "onnxruntime/ort-wasm-simd-threaded.wasm";
for (const bundle of [INT8, ...(ONNXRUNTIME ? [FP32] : [])]) {
  test(`the page works without a connection after the first visit, with ${basename(bundle)}`, async () => {
    const own = await serve(assemble("demo", bundle)); // at a port that the browser has not visited yet
    await page.goto(own.origin);
    await status(page, /Ready/);
    await page.evaluate(async (wanted) => void (await navigator[wanted].ready), "serviceWorker" as const);
    const keepsRuntime = () => page.evaluate(async (path) => (await caches.match(path)) !== undefined, RUNTIME);
    if (bundle === FP32) await until(keepsRuntime, Boolean);
    else assert.equal(await keepsRuntime(), false);
    await own.close();
    await page.reload();
    await status(page, /Ready/);
    assert.equal(await translateOnPage(page, SENTENCES[5]!), await expected(SENTENCES[5]!)); // the same in fp32
  });
}

test("a new version of a model takes the place of the old one in the browser's storage", async () => {
  const folder = temporary();
  const other = await serve(folder);
  const translated = () =>
    page.evaluate(
      async ([address, location, text]) => {
        const { openTranslator } = (await import(address)) as typeof import("edgeformer");
        const translator = await openTranslator(location);
        const files = Object.values(translator.manifest.files).map(({ sha256 }) => sha256);
        const names = (await (await caches.open("edgeformer")).keys()).map(({ url }) => url.split("/").at(-1)!);
        const found = (await translator.translate(text, { beamSize: 1 })).text;
        return { found, files, kept: names.filter((name) => !name.startsWith("manifest-")) };
      },
      [new URL(PACKAGE, `${server.origin}/`).href, `${other.origin}/`, SENTENCES[0]!] as const,
    );
  await page.goto(server.origin);
  await status(page, /Ready/); // and its own model is kept
  await page.evaluate((name) => caches.delete(name), "edgeformer");
  for (const bundle of [INT8, EN_FR, INT8]) {
    cpSync(bundle, folder, { recursive: true });
    const { found, files, kept } = await translated();
    assert.ok(kept.length > 1);
    for (const name of kept) assert.ok(files.includes(name.split(".")[0]!), name);
    if (bundle === INT8) assert.equal(found, await expected(SENTENCES[0]!));
  }
  await other.close();
  assert.equal((await translated()).found, await expected(SENTENCES[0]!));
});

test("the bookmarklet translates another page, with files of the demo alone", async () => {
  const site = await servePage();
  await page.goto(server.origin);
  const href = await until(
    () => page.evaluate((id) => document.getElementById(id)!.getAttribute("href")!, "bookmarklet"),
    (found) => found.startsWith("javascript:"),
  );
  const { origins } = watch(opened.page?.context());
  await page.goto(site.origin);
  await page.evaluate(href.slice("javascript:".length));
  await checkTranslated(page);
  if (opened.page)
    assert.deepEqual([...origins].filter((origin) => origin !== "null").sort(), [server.origin, site.origin].sort());
});
