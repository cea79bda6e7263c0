/** Translation from text to text in this thread. */
import { type Bundle, type BundleLocation, type OpenBundleOptions, openBundle } from "../bundle/bundle.js";
import { ATTENTION_FILE, type Manifest, SHORTLIST_FILE, type SpecialTokens, WEIGHTS_FILE } from "../bundle/manifest.js";
import type { Engine, Hypothesis } from "../engine/interface.js";
import { openKernels } from "../engine/kernels.js";
import { type ImportOnnxRuntime, openOnnxRuntime } from "../engine/onnxruntime.js";
import type { WasmSource } from "../engine/wasm.js";
import { EdgeformerError } from "../errors.js";
import type { Block } from "../text/block.js";
import type { BlockTranslation, TextOptions } from "../text/text_translator.js";
import type { Tokenizers } from "../tokenizer/interface.js";
import { openTokenizers } from "../tokenizer/open.js";
import { type DecodeRequest, Decoder } from "./decoder.js";
import { checkGolden } from "./golden.js";
import { chosenLanguages, type LanguagePair, resolvedTokens } from "./languages.js";
import { changedOptions, type DecodeOptions, defaultOptions, type IdOptions, optionError } from "./options.js";
import { Shortlist } from "./shortlist.js";
import { prefixIds, withIds } from "./target.js";
import type {
  Attention,
  CallOptions,
  GoldenResult,
  TextHypothesis,
  TokenStep,
  Translation,
  Translator,
} from "./translation.js";

/** How to open a translator. */
export interface OpenOptions extends OpenBundleOptions {
  /** The engine; by default the kernels if the bundle has a plan. */
  engine?: Engine["name"] | undefined;
  /** Where the kernels' WebAssembly comes from; by default, this package's `wasm` folder. */
  wasm?: WasmSource | undefined;
  /** Imports ONNX Runtime, for bundlers: `() => import("onnxruntime-web")`. */
  onnxruntime?: ImportOnnxRuntime | undefined;
}

/** What Python's `str.isspace` accepts. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: separators of information are white space in Python
const BLANK = /^[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$/u;

/**
 * Opens a bundle.
 *
 * @throws EdgeformerError of kind `bundle`: it is missing, damaged, or of another revision; of kind `engine`: nothing
 *   here can compute it.
 */
export async function openTranslator(location: BundleLocation, options: OpenOptions = {}): Promise<Translator> {
  const bundle = await openBundle(location, options);
  const { manifest } = bundle;
  const hasLists = usesKernels(manifest, options) && Object.hasOwn(manifest.files, SHORTLIST_FILE);
  const lists = hasLists ? [SHORTLIST_FILE] : [];
  bundle.expect([WEIGHTS_FILE, manifest.tokenizers.source, manifest.tokenizers.target, ...lists]);
  const [engine, tokenizers, shortlist] = await Promise.all([
    openEngine(bundle, options),
    openTokenizers(manifest, bundle),
    ...lists.map(async (name) => Shortlist.read(await bundle.read(name), manifest)),
  ]);
  return new LocalTranslator(bundle, engine, tokenizers, shortlist);
}

function usesKernels({ plan }: Manifest, { engine }: OpenOptions): boolean {
  return (engine ?? (plan ? "kernels" : "onnxruntime")) === "kernels";
}

async function openEngine(bundle: Bundle, options: OpenOptions): Promise<Engine> {
  const { plan } = bundle.manifest;
  if (!usesKernels(bundle.manifest, options)) {
    const opened = await openOnnxRuntime(bundle, options.onnxruntime);
    await opened.load();
    return opened;
  }
  if (plan) return openKernels(bundle, plan, options.wasm);
  throw new EdgeformerError("engine", `Bundle \`${bundle.label}\` has no plan for the kernels; export it in int8.`);
}

/** How a call translates. */
interface CallSettings {
  decoder: Decoder;
  options: IdOptions;
  special: SpecialTokens;
  /** Tokens before and after those of a source. */
  around: [number[], number[]];
}

/** A model with its tokenizers. */
export class LocalTranslator implements Translator {
  readonly #defaults: DecodeOptions;

  constructor(
    private readonly bundle: Bundle,
    private readonly model: Engine,
    readonly tokenizers: Tokenizers,
    private readonly shortlist: Shortlist | undefined,
  ) {
    this.#defaults = defaultOptions(bundle.manifest);
  }

  get manifest(): Manifest {
    return this.bundle.manifest;
  }

  get engine(): "kernels" | "onnxruntime" {
    return this.model.name;
  }

  get hasShortlist(): boolean {
    return this.shortlist !== undefined;
  }

  get hasAttention(): boolean {
    return this.model.name === "kernels" || Object.hasOwn(this.manifest.files, ATTENTION_FILE);
  }

  /** What each token of a translation attends to: one weight per token of the source text, special tokens left out. */
  async attention(text: string, ids: readonly number[], options: CallOptions = {}): Promise<Float32Array[]> {
    const call = this.#call(options);
    const source = this.#encode(text, 0, call).ids;
    return (await this.#weights(source, ids, call)).map((row) => ofText(row, call));
  }

  translate(text: string, options?: CallOptions): Promise<Translation>;
  translate(texts: readonly string[], options?: CallOptions): Promise<Translation[]>;
  async translate(texts: string | readonly string[], options: CallOptions = {}): Promise<Translation | Translation[]> {
    if (typeof texts === "string") return (await this.translate([texts], options))[0]!;
    if (!Array.isArray(texts)) throw optionError("`texts` must be a text or a list of texts.");
    const call = this.#call(options);
    const prefixes = this.#prefixes(options.targetPrefix, texts.length, call);
    const sources = texts.map((text, index) => this.#encode(text, index, call));
    const requests = sources.map(({ ids }, index) => this.#request(ids, prefixes[index]!, index, call));
    const read = requests.filter(({ source }) => source.length);
    const found = await call.decoder.decode(read, call.options, options.signal);
    const hypotheses = new Map(read.map((request, index) => [request, found[index]!]));
    const translations = sources.map((source, index) => {
      const of = hypotheses.get(requests[index]!)?.map((each) => this.#detokenized(each, call));
      return translation(source, of ?? [blank(call.options)]);
    });
    if (call.options.returnAttention) await this.#attend(translations, call);
    return translations;
  }

  async *translateTokens(text: string, options: CallOptions = {}): AsyncGenerator<TokenStep, void> {
    const call = this.#call({ ...options, beamSize: options.beamSize ?? 1 });
    if (call.options.beamSize !== 1 || call.options.nBest !== 1 || call.options.returnAlternatives)
      throw optionError("A translation can be streamed only with `beamSize` 1 and `nBest` 1, without alternatives.");
    const [prefix] = this.#prefixes(options.targetPrefix, 1, call);
    const source = this.#encode(text, 0, call);
    if (!source.ids.length) return;
    const request = this.#request(source.ids, prefix!, 0, call);
    const steps = call.decoder.steps(request, { ...call.options, returnTokenScores: true }, options.signal);
    let step = await steps.next();
    try {
      for (; !step.done; step = await steps.next()) yield this.#step(step.value.ids, step.value.tokenScores, null);
    } finally {
      if (!step.done) await steps.return([]); // the caller wants no more
    }
    const [best] = step.value;
    const ids = [...best!.ids, ...(best!.finished ? [call.special.eos] : [])];
    const complete = translation(source, [this.#detokenized(best!, call)]);
    if (call.options.returnAttention) await this.#attend([complete], call);
    yield this.#step(ids, best!.tokenScores, complete);
  }

  async translateBlocks(
    blocks: readonly Block[],
    options: CallOptions = {},
    textOptions: TextOptions = {},
  ): Promise<BlockTranslation[]> {
    const { textTranslator } = await import("../text/text_translator.js");
    return textTranslator(this, textOptions).translateBlocks(blocks, options);
  }

  verify(): Promise<GoldenResult> {
    return checkGolden(this.bundle, this, this.tokenizers.target);
  }

  close(): void {
    this.model.close();
  }

  /** Source token ids of a text, as the model reads them by default. */
  encode(text: string): number[] {
    return this.#encode(text, 0, this.#call({})).ids;
  }

  /** Decodes token ids; for callers that have their own tokenizer. */
  async decode(sources: readonly (readonly number[])[], options: CallOptions = {}): Promise<Hypothesis[][]> {
    const call = this.#call(options);
    const requests = sources.map((source, index) => this.#request(source, [], index, call));
    return call.decoder.decode(requests, call.options, options.signal);
  }

  #call({ targetPrefix, sourceLanguage, targetLanguage, shortlist, signal, ...changes }: CallOptions): CallSettings {
    const { manifest, tokenizers } = this;
    const options = withIds(tokenizers.target, changedOptions(this.#defaults, changes));
    const own: LanguagePair = [manifest.source_language, manifest.target_language];
    const pair = chosenLanguages(manifest.text, own, [sourceLanguage ?? "", targetLanguage ?? ""]);
    const ids = (side: "source" | "target", tokens: readonly string[]) =>
      resolvedTokens(manifest.text, tokens, pair).map((token) => {
        const id = tokenizers[side].tokenId(token);
        if (id !== undefined) return id;
        throw new EdgeformerError("bundle", `The bundle's tokenizer lacks \`${token}\`; export the bundle again.`);
      });
    const special = { ...manifest.special, prefix: ids("target", manifest.text.target_prefix) };
    const decoder = new Decoder(this.model, manifest, special, shortlist === false ? undefined : this.shortlist);
    const around: CallSettings["around"] = [
      ids("source", manifest.text.source_prefix),
      ids("source", manifest.text.source_suffix),
    ];
    if (options.minLength > decoder.limit({ ...options, maxLength: null }))
      throw optionError(
        `\`minLength\` must be at most as many tokens as the model writes, but is ${options.minLength}.`,
      );
    return { decoder, options, special, around };
  }

  #prefixes(given: CallOptions["targetPrefix"], count: number, { special }: CallSettings): number[][] {
    return prefixIds(this.tokenizers.target, given, count, [special.pad, special.bos, special.eos]);
  }

  #encode(text: string, index: number, { options, around }: CallSettings): Translation["source"] {
    if (typeof text !== "string") throw inputError(index, "must be a string");
    if (BLANK.test(text)) return { text, ids: [], truncated: 0 };
    const [before, after] = around;
    const ids = this.tokenizers.source.encode(text);
    const limit = Math.min(options.maxInputLength ?? Infinity, this.manifest.max_source_length);
    const room = limit - before.length - after.length;
    const truncated = Math.max(0, ids.length - room);
    if (truncated && options.maxInputLength === null)
      throw inputError(
        index,
        `has ${ids.length + limit - room} tokens, but the model accepts at most ${limit}; split it`,
      );
    if (truncated && room < 1)
      throw optionError(`\`maxInputLength\` must be at least ${limit - room + 1}, but is ${options.maxInputLength}.`);
    return { text, ids: [...before, ...ids.slice(0, room), ...after], truncated };
  }

  #request(source: readonly number[], prefix: readonly number[], index: number, call: CallSettings): DecodeRequest {
    const most = call.decoder.limit(call.options);
    if (prefix.length >= most)
      throw inputError(index, `has a target prefix of ${prefix.length} tokens, but may have at most ${most} in all`);
    return { source, prefix, limit: call.decoder.limit(call.options, source.length, prefix.length) };
  }

  #detokenized({ ids, score, finished, tokenScores }: Hypothesis, { options }: CallSettings): TextHypothesis {
    const hasScore = options.returnScores || options.returnTokenScores || options.nBest > 1 || options.beamSize > 1;
    const sum = tokenScores.reduce((total, each) => total + each, 0);
    return {
      text: this.tokenizers.target.decode(ids),
      tokens: ids.map((id) => this.tokenizers.target.token(id) ?? ""),
      ids,
      score: hasScore ? score : null,
      finished,
      tokenScores: options.returnTokenScores ? tokenScores : null,
      confidence: options.returnTokenScores ? Math.exp(sum / Math.max(1, tokenScores.length)) : null,
      attention: null,
    };
  }

  /** Adds attention weights to all hypotheses. */
  async #attend(translations: readonly Translation[], call: CallSettings): Promise<void> {
    if (!this.hasAttention) throw optionError("The model has no attention weights; set `returnAttention` to false.");
    for (const { source, hypotheses } of translations)
      for (const hypothesis of source.ids.length ? hypotheses : [])
        hypothesis.attention = await this.#attention(source.ids, hypothesis, call);
  }

  /** Feeds a target to the model once more, to see what it attends to. */
  async #weights(
    source: readonly number[],
    target: readonly number[],
    { special }: CallSettings,
  ): Promise<Float32Array[]> {
    const fed = [special.bos, ...special.prefix, ...target.slice(0, -1)];
    return (await this.model.attention(source, fed)).slice(special.prefix.length);
  }

  async #attention(source: readonly number[], hypothesis: TextHypothesis, call: CallSettings): Promise<Attention> {
    const target = [...hypothesis.ids, ...(hypothesis.finished ? [call.special.eos] : [])];
    const weights = await this.#weights(source, target, call);
    const aligned = hypothesis.ids.map((_, i): [number, number] => [largest(ofText(weights[i]!, call)), i]);
    return {
      sourceTokens: source.map((id) => this.tokenizers.source.token(id) ?? ""),
      targetTokens: target.map((id) => this.tokenizers.target.token(id) ?? ""),
      weights,
      alignment: aligned
        .filter(([position]) => position >= 0)
        .map(([position, i]) => [call.around[0].length + position, i]),
    };
  }

  #step(ids: readonly number[], tokenScores: readonly number[], complete: Translation | null): TokenStep {
    const { target } = this.tokenizers;
    return {
      id: ids.at(-1)!,
      token: target.token(ids.at(-1)!) ?? "",
      logProbability: tokenScores.at(-1)!,
      text: complete?.text ?? target.decode(ids),
      isLast: complete !== null,
      translation: complete,
    };
  }
}

function translation(source: Translation["source"], hypotheses: TextHypothesis[]): Translation {
  return { text: hypotheses[0]!.text, source, hypotheses };
}

/** Weights of those source tokens that are part of the text. */
const ofText = (row: Float32Array, { around: [before, after] }: CallSettings): Float32Array =>
  row.subarray(before.length, row.length - after.length);

/** Position of the first largest value; -1 if there is none. */
function largest(values: Float32Array): number {
  return values.reduce((best, value, position) => (best < 0 || value > values[best]! ? position : best), -1);
}

/** Translation of a blank text. */
function blank({ returnTokenScores }: IdOptions): TextHypothesis {
  const [tokenScores, confidence] = returnTokenScores ? [[], 1] : [null, null];
  return { text: "", tokens: [], ids: [], score: 0, finished: true, tokenScores, confidence, attention: null };
}

function inputError(index: number, problem: string): EdgeformerError {
  return new EdgeformerError("input", `Text ${index + 1} ${problem}.`);
}
