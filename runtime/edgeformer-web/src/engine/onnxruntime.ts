/**
 * ONNX Runtime as an engine, for bundles without a plan and for attention weights. Graphs and names are those of
 * `contract.py`: the encoder returns constants and initial states, and each step of the decoder takes and returns
 * `past.*` and `present.*`. A state has one sentence and R rows.
 */
import type { Bundle } from "../bundle/bundle.js";
import { ATTENTION_FILE, DECODER_FILE, ENCODER_FILE, type StateTensor, WEIGHTS_FILE } from "../bundle/manifest.js";
import { EdgeformerError } from "../errors.js";
import type { Engine, EngineBatch } from "./interface.js";

/** Positions for which caches that are written in place have room at first; doubled whenever they are full. */
const FIRST_CAPACITY = 32;

type TensorData = Float32Array | Int32Array | BigInt64Array | Uint16Array | Uint8Array;

interface OrtTensor {
  readonly type: string;
  readonly data: unknown;
  readonly dims: readonly number[];
}

interface OrtSession {
  run(feeds: Record<string, OrtTensor>): Promise<Readonly<Record<string, OrtTensor>>>;
  release(): Promise<void>;
}

/** What is used of the package `onnxruntime-web`. */
export interface OnnxRuntime {
  readonly InferenceSession: {
    create(
      graph: Uint8Array,
      options: { externalData: { path: string; data: Uint8Array }[]; executionProviders: string[] },
    ): Promise<OrtSession>;
  };
  readonly Tensor: new (type: never, data: never, dims: readonly number[]) => OrtTensor;
}

/** Imports ONNX Runtime; for bundlers, which cannot follow the import here: `() => import("onnxruntime-web")`. */
export type ImportOnnxRuntime = () => Promise<unknown>;

/** The name is a parameter, and has comments, so that bundlers do not look for a package that may be missing. */
const importPeer = (name = "onnxruntime-web") => import(/* @vite-ignore */ /* webpackIgnore: true */ name);

/**
 * Imports ONNX Runtime for a bundle. Files are read when they are first needed; see `load`.
 *
 * @throws EdgeformerError of kind `engine`: it is not installed.
 */
export async function openOnnxRuntime(
  bundle: Bundle,
  from: ImportOnnxRuntime = () => importPeer(),
): Promise<OnnxEngine> {
  try {
    return new OnnxEngine(bundle, (await from()) as OnnxRuntime);
  } catch (error) {
    throw new EdgeformerError(
      "engine",
      `This needs \`onnxruntime-web\`: npm install onnxruntime-web, or export the model with a plan, as ` +
        `\`edgeformer export --precision int8\` does (${error}).`,
    );
  }
}

/** A bundle's graphs. */
export class OnnxEngine implements Engine {
  readonly name = "onnxruntime";
  readonly #sessions = new Map<string, Promise<OrtSession>>();
  readonly #files = new Map<string, Promise<Uint8Array>>();
  #isClosed = false;

  constructor(
    private readonly bundle: Bundle,
    private readonly ort: OnnxRuntime,
  ) {}

  /** Reads the weights and graphs, so that nothing is missing later without a connection. */
  async load(): Promise<void> {
    const { files } = this.bundle.manifest;
    const graphs = [ENCODER_FILE, DECODER_FILE, ATTENTION_FILE].filter((name) => Object.hasOwn(files, name));
    await Promise.all([WEIGHTS_FILE, ...graphs].map((name) => this.#read(name)));
  }

  async start(source: readonly number[]): Promise<EngineBatch> {
    return new OnnxBatch(this, DECODER_FILE, this.bundle.manifest.state, await this.#encoded(source));
  }

  async attention(source: readonly number[], fed: readonly number[]): Promise<Float32Array[]> {
    const batch = new OnnxBatch(this, ATTENTION_FILE, this.bundle.manifest.state, await this.#encoded(source));
    const weights: Float32Array[] = [];
    for (const token of fed) weights.push(await batch.step([token]));
    return weights;
  }

  close(): void {
    this.#isClosed = true;
    for (const session of this.#sessions.values()) void session.then((opened) => opened.release());
    this.#sessions.clear();
    this.#files.clear();
  }

  tensor(type: string, data: TensorData, dims: readonly number[]): OrtTensor {
    return new this.ort.Tensor(type as never, data as never, dims);
  }

  /**
   * Runs a graph.
   *
   * @throws EdgeformerError of kind `model`: the engine fails.
   */
  async run(file: string, feeds: Record<string, OrtTensor>): Promise<Readonly<Record<string, OrtTensor>>> {
    const session = await this.#session(file);
    try {
      return await session.run(feeds);
    } catch (error) {
      throw new EdgeformerError("model", `ONNX Runtime cannot run \`${file}\`: ${error}.`);
    }
  }

  async #encoded(source: readonly number[]): Promise<Map<string, OrtTensor>> {
    const outputs = await this.run(ENCODER_FILE, {
      source: this.tensor("int64", BigInt64Array.from(source, BigInt), [1, source.length]),
      source_length: this.tensor("int64", BigInt64Array.of(BigInt(source.length)), [1]),
    });
    return new Map(Object.entries(outputs));
  }

  #session(file: string): Promise<OrtSession> {
    if (this.#isClosed) throw new EdgeformerError("closed", "The translator is closed; open it again.");
    let session = this.#sessions.get(file);
    if (!session) {
      session = this.#open(file);
      this.#sessions.set(file, session);
    }
    return session;
  }

  #read(name: string): Promise<Uint8Array> {
    const content = this.#files.get(name) ?? this.bundle.read(name);
    this.#files.set(name, content);
    return content;
  }

  async #open(file: string): Promise<OrtSession> {
    const [graph, data] = await Promise.all([this.#read(file), this.#read(WEIGHTS_FILE)]);
    const options = { externalData: [{ path: WEIGHTS_FILE, data }], executionProviders: ["wasm"] };
    try {
      return await this.ort.InferenceSession.create(graph, options);
    } catch (error) {
      throw new EdgeformerError(
        "engine",
        `ONNX Runtime cannot open \`${file}\` of \`${this.bundle.label}\`: ${error}.`,
      );
    }
  }
}

/** The state of a sentence with R rows. */
class OnnxBatch implements EngineBatch {
  #length = 0;
  #rows = 1;
  #capacity = FIRST_CAPACITY;
  readonly #hasInPlace: boolean;

  /**
   * @param file the step graph.
   * @param values tensors by name: those that the encoder returned.
   */
  constructor(
    private readonly engine: OnnxEngine,
    private readonly file: string,
    private readonly table: readonly StateTensor[],
    private readonly values: Map<string, OrtTensor>,
  ) {
    this.#hasInPlace = table.some(isInPlace);
    for (const tensor of table) if (tensor.kind === "cache") values.set(tensor.name, this.#emptyCache(tensor));
  }

  async step(tokens: readonly number[]): Promise<Float32Array> {
    if (this.#length === this.#capacity) this.#widen();
    const { engine } = this;
    const feeds: Record<string, OrtTensor> = {
      token: engine.tensor("int64", BigInt64Array.from(tokens, BigInt), [tokens.length]),
      position: engine.tensor("int64", BigInt64Array.of(BigInt(this.#length)), []),
    };
    if (this.#hasInPlace) {
      // Rows are moved when they are selected, so every beam finds all of its past in its own row.
      const own = Int32Array.from({ length: this.#rows * this.#capacity }, (_, i) => Math.floor(i / this.#capacity));
      feeds.cache_indirection = engine.tensor("int32", own, [1, this.#rows, this.#capacity]);
      feeds.beam_width = engine.tensor("int32", Int32Array.of(this.#rows), [1]);
    }
    for (const { name, kind } of this.table)
      feeds[kind === "constant" ? name : `past.${name}`] = this.values.get(name)!;
    const outputs = await engine.run(this.file, feeds);
    for (const { name, kind } of this.table)
      if (kind !== "constant") this.values.set(name, outputs[`present.${name}`]!);
    this.#length++;
    return (outputs.logits ?? outputs.attention)!.data as Float32Array;
  }

  async select(rows: readonly number[]): Promise<void> {
    for (const { name, kind, axes } of this.table) {
      if (axes[0] !== "R" && kind === "constant") continue;
      const { type, data, dims } = this.values.get(name)!;
      const old = data as TensorData;
      const size = old.length / dims[0]!;
      const next = new (old.constructor as Float32ArrayConstructor)(rows.length * size) as TensorData;
      for (const [to, row] of rows.entries()) next.set(old.subarray(row * size, (row + 1) * size) as never, to * size);
      this.values.set(name, this.engine.tensor(type, next, [rows.length, ...dims.slice(1)]));
    }
    this.#rows = rows.length;
  }

  end(): void {
    this.values.clear();
  }

  #emptyCache(tensor: StateTensor): OrtTensor {
    const sizes: Record<string, number> = { R: this.#rows, P: 0, T: this.#capacity };
    const dims = tensor.axes.map((axis) => (typeof axis === "number" ? axis : sizes[axis]!));
    const size = dims.reduce((product, each) => product * each, 1);
    const data = tensor.dtype === "float16" ? new Uint16Array(size) : new Float32Array(size);
    return this.engine.tensor(tensor.dtype, data, dims);
  }

  /** Doubles the capacity of caches that are written in place. */
  #widen(): void {
    const [before, after] = [this.#capacity, 2 * this.#capacity];
    this.#capacity = after;
    for (const tensor of this.table.filter(isInPlace)) {
      const old = this.values.get(tensor.name)!;
      const next = this.#emptyCache(tensor);
      const width = old.dims.slice(tensor.axes.indexOf("T") + 1).reduce((product, each) => product * each, 1);
      const [from, to] = [old.data as Float32Array, next.data as Float32Array];
      for (let block = 0; block < from.length / (before * width); block++)
        to.set(from.subarray(block * before * width, (block + 1) * before * width), block * after * width);
      this.values.set(tensor.name, next);
    }
  }
}

function isInPlace({ axes }: StateTensor): boolean {
  return axes.includes("T");
}
