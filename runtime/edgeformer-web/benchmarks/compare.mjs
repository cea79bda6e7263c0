/**
 * Compares this package with Bergamot's WebAssembly or with transformers.js on one model, in Chromium and in Node: one
 * sentence at a time, text to text, greedy, one thread; in Chromium, Bergamot and this package work in workers. Rounds
 * take turns.
 *
 * Usage: node benchmarks/compare.mjs BUNDLE MODEL SOURCE MODULES [ROUNDS]
 *
 *   BUNDLE   the model as a bundle
 *   MODEL    the same model: a folder with Firefox's files (model.*.bin, lex.*.bin, vocab.*.spm) for Bergamot; or one
 *            with config.json, tokenizer.json and onnx/*_quantized.onnx for transformers.js
 *   SOURCE   sentences, one a line
 *   MODULES  a folder in which `npm install --ignore-scripts @browsermt/bergamot-translator`, or
 *            `@huggingface/transformers`, was run; for Bergamot in Node, its `worker` folder needs a package.json with
 *            {"type": "commonjs"}
 */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm" };

/** Scripts that return a function from a sentence to its translation, given the addresses of engine and model. */
export const ENGINES = {
  edgeformer: async (engine, model) => {
    const { openTranslator, openWorkerTranslator } = await import(`${engine}/dist/index.js`);
    const open = typeof Worker === "undefined" ? openTranslator : openWorkerTranslator;
    const translator = await open(`${model}/`);
    return async (text) => (await translator.translate(text, { beamSize: 1 })).text;
  },
  bergamot: async (engine, model, names) => {
    const { LatencyOptimisedTranslator, TranslatorBacking } = await import(`${engine}/translator.js`);
    const read = async (name) => {
      if (typeof window !== "undefined") return (await fetch(`${model}/${name}`)).arrayBuffer();
      const { readFile } = await import("node:fs/promises");
      return new Uint8Array(await readFile(new URL(`${model}/${name}`))).buffer;
    };
    class Backing extends TranslatorBacking {
      async loadModelRegistery() {
        return [{ from: "en", to: "pt", files: {} }];
      }
      async loadTranslationModel() {
        const [weights, shortlist, vocab] = await Promise.all([names.model, names.lex, names.vocab].map(read));
        return { model: weights, shortlist, vocabs: [vocab], qualityModel: null, config: {} };
      }
    }
    const translator = new LatencyOptimisedTranslator({}, new Backing({ pivotLanguage: null }));
    return async (text) => (await translator.translate({ from: "en", to: "pt", text, html: false })).target.text;
  },
  transformers: async (engine, model) => {
    const inPage = typeof window !== "undefined";
    const library = await import(`${engine}/@huggingface/transformers/dist/transformers${inPage ? ".min.js" : ".node.min.mjs"}`);
    const { AutoModelForSeq2SeqLM, AutoTokenizer, env } = library;
    const [parent, name] = [new URL(".", model), model.split("/").at(-1)];
    env.allowRemoteModels = false;
    env.allowLocalModels = true;
    env.localModelPath = inPage ? parent.pathname : decodeURIComponent(parent.pathname);
    if (inPage) {
      env.backends.onnx.wasm.wasmPaths = `${engine}/onnxruntime-web/dist/`;
      env.backends.onnx.wasm.numThreads = 1;
    }
    const session_options = { intraOpNumThreads: 1, interOpNumThreads: 1 };
    const tokenizer = await AutoTokenizer.from_pretrained(name);
    const device = inPage ? "wasm" : "cpu";
    const loaded = await AutoModelForSeq2SeqLM.from_pretrained(name, { dtype: "q8", device, session_options });
    return async (text) => {
      const output = await loaded.generate({ ...(await tokenizer(text)), num_beams: 1 });
      return tokenizer.batch_decode(output, { skip_special_tokens: true })[0];
    };
  },
};

/** Of each engine that this package is compared with, the part of MODULES that it needs. */
const MODULES = { bergamot: ["node_modules", "@browsermt", "bergamot-translator"], transformers: ["node_modules"] };

/** Opens an engine, and returns milliseconds from the start to the first translation, and a function for one round. */
async function opened(open, engine, model, names, first, start) {
  const translate = await open(engine, model, names);
  await translate(first);
  const cold = performance.now() - start;
  const round = async (texts) => {
    const [times, found] = [[], []];
    for (const text of texts) {
      const from = performance.now();
      found.push(await translate(text));
      times.push(performance.now() - from);
    }
    return { times, found };
  };
  return { cold, round };
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.ceil((sorted.length - 1) / 2)]) / 2;
}

/** Serves folders by the first part of a path; what a page asks for is compressed, as by a content network. */
async function serve(folders, sizes) {
  const compressed = new Map();
  const server = createServer((request, response) => {
    const [, first, ...rest] = new URL(request.url, "http://localhost").pathname.split("/");
    response.setHeader("Content-Type", TYPES[extname(request.url)] ?? "application/octet-stream");
    response.setHeader("Cache-Control", "max-age=600"); // a page and its worker ask for some files twice
    if (first === "empty.html") return response.end("<!doctype html><title>Empty</title>");
    const path = folders[first] && join(folders[first], ...rest);
    if (!path || !existsSync(path)) return response.writeHead(404).end();
    if (!compressed.has(path)) compressed.set(path, gzipSync(readFileSync(path), { level: 6 }));
    const content = compressed.get(path);
    sizes.push({ folder: first, bytes: content.length });
    return response.writeHead(200, { "Content-Encoding": "gzip", "Content-Length": content.length }).end(content);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { origin: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

/** Resident memory of the processes of a browser's pages. */
async function renderersMB(browser) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  const renderers = processInfo.filter(({ type }) => type === "renderer");
  const sizes = renderers.map(({ id }) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${id}/status`, "utf8"))[1]));
  return sizes.reduce((sum, size) => sum + size, 0) / 1e3;
}

/** Rounds in Chromium: every round visits with an empty browser, then translates all sentences three times. */
async function inChromium({ folders, names, texts, rounds, peer }) {
  const { chromium } = await import("playwright-core");
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  const sizes = [];
  const server = await serve(folders, sizes);
  const results = { edgeformer: [], [peer]: [] };
  for (let round = 0; round <= rounds; round++) {
    const open = {};
    for (const name of Object.keys(results)) {
      const [engine, model] = PATHS[name] ?? PATHS.peer;
      const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
      const page = await browser.newPage();
      sizes.length = 0;
      await page.goto(`${server.origin}/empty.html`);
      const emptyMB = await renderersMB(browser);
      const code = `(async () => {
        globalThis.opened = await (${opened})(${ENGINES[name]}, ...${JSON.stringify([
          `${server.origin}/${engine}`, `${server.origin}/${model}`, names, texts[0]])}, performance.now());
        return opened.cold; })()`;
      const cold = await page.evaluate(code);
      const sum = (folder) => sizes.reduce((all, each) => all + (each.folder === folder ? each.bytes : 0), 0) / 1e6;
      open[name] = { browser, page, emptyMB, cold, engineMB: sum(engine), modelMB: sum(model) };
    }
    for (const pass of ["warming", "first", "second"])
      for (const [name, { page, cold, engineMB, modelMB }] of Object.entries(open)) {
        await page.bringToFront();
        const { times, found } = await page.evaluate((all) => globalThis.opened.round(all), texts);
        const memoryMB = (await renderersMB(open[name].browser)) - open[name].emptyMB;
        if (round && pass !== "warming") results[name].push({ cold, engineMB, modelMB, memoryMB, times, found });
      }
    for (const { browser } of Object.values(open)) await browser.close();
  }
  server.close();
  return results;
}

const PATHS = { edgeformer: ["edgeformer", "bundle"], peer: ["peer", "model"] };

/** Rounds in Node: each engine in a process of its own, which this same script is. */
async function inNode(given) {
  const results = { edgeformer: [], [given.peer]: [] };
  for (let round = 0; round < given.rounds; round++)
    for (const name of Object.keys(results)) {
      const request = JSON.stringify({ ...given, name });
      const output = execFileSync(process.execPath, [fileURLToPath(import.meta.url), "--one"], { input: request });
      results[name].push(...JSON.parse(output.toString().trim().split("\n").at(-1)));
    }
  return results;
}

async function one() {
  const start = performance.now();
  const { name, folders, names, texts } = JSON.parse(readFileSync(0, "utf8"));
  const [engine, model] = (PATHS[name] ?? PATHS.peer).map((folder) => pathToFileURL(realpathSync(folders[folder])).href);
  const { cold, round } = await opened(ENGINES[name], engine, model, names, texts[0], start);
  await round(texts);
  const measured = [await round(texts), await round(texts)];
  const memoryMB = process.resourceUsage().maxRSS / 1e3;
  const results = measured.map((each) => ({ cold, memoryMB, ...each }));
  console.log(JSON.stringify(results));
  process.exit(0);
}

function report(where, results) {
  const line = (all) => ({
    "ms a sentence": median(all.flatMap(({ times }) => times)).toFixed(2),
    "first translation, ms": median(all.map(({ cold }) => cold)).toFixed(0),
    "memory, MB": median(all.map(({ memoryMB }) => memoryMB)).toFixed(0),
    "engine, MB gzipped": all[0].engineMB?.toFixed(3),
    "model, MB gzipped": all[0].modelMB?.toFixed(1),
  });
  const [own, peer] = Object.values(results);
  const ratio = median(peer.flatMap(({ times }) => times)) / median(own.flatMap(({ times }) => times));
  const same = own[0].found.filter((text, index) => text.trim() === peer[0].found[index].trim()).length;
  console.log(`${where}: ${ratio.toFixed(2)} times as fast a sentence; ${same} of ${own[0].found.length} equal`);
  console.table(Object.fromEntries(Object.entries(results).map(([name, all]) => [name, line(all)])));
}

async function main([bundle, model, source, modules, rounds = "3"]) {
  const peer = existsSync(join(model, "config.json")) ? "transformers" : "bergamot";
  const named = (start) => readdirSync(model).find((name) => name.startsWith(`${start}.`));
  const given = {
    peer,
    folders: { edgeformer: PACKAGE, bundle, peer: join(modules, ...MODULES[peer]), model },
    names: { model: named("model"), lex: named("lex"), vocab: named("vocab") },
    texts: readFileSync(source, "utf8").trim().split("\n"),
    rounds: Number(rounds),
  };
  report("Chromium", await inChromium(given));
  report(`Node ${process.version}`, await inNode(given));
}

if (process.argv[2] === "--one") await one();
else await main(process.argv.slice(2));
