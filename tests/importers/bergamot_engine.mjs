// Translates HTML with Bergamot's own engine: `node bergamot_engine.mjs REQUEST.json`.
import { readFile } from "node:fs/promises";
import { BatchTranslator, TranslatorBacking } from "@browsermt/bergamot-translator/translator.js";

const { model, vocabulary, texts } = JSON.parse(await readFile(process.argv[2], "utf8"));
const content = async (path) => new Uint8Array(await readFile(path)).buffer;

class Folder extends TranslatorBacking {
  async loadModelRegistery() {
    return [{ from: "en", to: "fr", files: {} }];
  }

  async loadTranslationModel() {
    const [weights, vocab] = [await content(model), await content(vocabulary)];
    return { model: weights, shortlist: new ArrayBuffer(0), vocabs: [vocab], qualityModel: null, config: {} };
  }
}

const settings = { workers: 1, pivotLanguage: null };
const translator = new BatchTranslator(settings, new Folder(settings));
const requests = texts.map((text) => translator.translate({ from: "en", to: "fr", text, html: true }));
console.log(JSON.stringify((await Promise.all(requests)).map((response) => response.target.text)));
process.exit(0);
