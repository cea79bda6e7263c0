/** The kernels' WebAssembly as an engine: see `edgeformer_kernels.h`, whose names this file follows. */
import type { Bundle } from "../bundle/bundle.js";
import { WEIGHTS_FILE } from "../bundle/manifest.js";
import { planNumbers } from "../bundle/plan.js";
import { EdgeformerError } from "../errors.js";
import type { Plan } from "../generated.js";
import type { Engine, EngineBatch, Hypothesis, Listing, PlainSearch, SearchSentence } from "./interface.js";
import { type KernelExports, ScratchMemory, startKernels, type WasmSource } from "./wasm.js";

const PROBLEM_BYTES = 256;
const OPTIONS_BYTES = 136;
const RESULTS_BYTES = 28;
const NOT_FINITE = 2;

/**
 * Opens a bundle with a plan. Its weights are read into the memory of the module.
 *
 * @throws EdgeformerError of kind `bundle`: the plan or the weights are damaged.
 */
export async function openKernels(bundle: Bundle, plan: Plan, wasm?: WasmSource): Promise<KernelEngine> {
  const kernels = await startKernels(wasm);
  const scratch = new ScratchMemory(kernels);
  const size = bundle.size(WEIGHTS_FILE);
  const weights = scratch.reserve("weights", size);
  await bundle.readInto(WEIGHTS_FILE, new Uint8Array(kernels.memory.buffer as ArrayBuffer, weights, size));
  const numbers = planNumbers(plan);
  const problem = scratch.reserve("problem", PROBLEM_BYTES);
  const model = kernels.edgeformer_open(
    weights,
    BigInt(size),
    scratch.doubles("plan", numbers),
    BigInt(numbers.length),
    0,
    problem,
    BigInt(PROBLEM_BYTES),
  );
  if (!model) {
    const [why] = new TextDecoder().decode(new Uint8Array(kernels.memory.buffer, problem, PROBLEM_BYTES)).split("\0");
    throw new EdgeformerError("bundle", `Bundle \`${bundle.label}\`: its plan is damaged: ${why}; export it again.`);
  }
  return new KernelEngine(kernels, scratch, model, bundle.manifest.target_vocab_size);
}

/** The opened model. */
export class KernelEngine implements Engine {
  readonly name = "kernels";
  #opened: KernelExports | undefined;

  constructor(
    kernels: KernelExports,
    private readonly scratch: ScratchMemory,
    private readonly model: number,
    private readonly vocabSize: number,
  ) {
    this.#opened = kernels;
  }

  async start(source: readonly number[], listing: Listing | undefined): Promise<EngineBatch> {
    const kernels = this.#kernels();
    const batch = this.#start(kernels, [source], listing);
    const width = listing?.listed.length ?? this.vocabSize;
    return new KernelBatch(kernels, new ScratchMemory(kernels), batch, width);
  }

  search(sentences: readonly SearchSentence[], listing: Listing | undefined, options: PlainSearch): Hypothesis[][] {
    const kernels = this.#kernels();
    const sources = sentences.map(({ source }) => source);
    const batch = this.#start(kernels, sources, listing);
    try {
      const begin = sentences.flatMap((sentence) => sentence.begin);
      const most = sentences.map((sentence) => sentence.most);
      const initial = sentences.map((sentence) => sentence.initial);
      const results = this.#resultsFor(sentences.length * options.hypotheses, Math.max(...most));
      const outcome = kernels.edgeformer_search(
        batch,
        this.scratch.wholes("begin", begin),
        BigInt(begin.length / sentences.length),
        this.scratch.wholes("most", most),
        this.scratch.doubles("initial", initial),
        this.#options(options),
        0,
        0,
        0,
        results.address,
      );
      if (outcome === NOT_FINITE)
        throw new EdgeformerError("model", "No token has a finite logit: the model's weights are damaged.");
      checked(outcome);
      return sentences.map((_, index) => results.read(index * options.hypotheses, options.hypotheses));
    } finally {
      kernels.edgeformer_end(batch);
    }
  }

  async attention(source: readonly number[], fed: readonly number[]): Promise<Float32Array[]> {
    const kernels = this.#kernels();
    const batch = this.#start(kernels, [source], undefined);
    try {
      const room = this.scratch.reserve("attention", 4 * source.length);
      return fed.map((token) => {
        checked(kernels.edgeformer_attend(batch, this.scratch.wholes("tokens", [token]), room, BigInt(source.length)));
        return new Float32Array(kernels.memory.buffer, room, source.length).slice();
      });
    } finally {
      kernels.edgeformer_end(batch);
    }
  }

  /** Size of the module's memory, weights included; it never shrinks. */
  get memoryBytes(): number {
    return this.#kernels().memory.buffer.byteLength;
  }

  close(): void {
    this.#opened = undefined; // its memory, with all that is in it, is freed when nothing refers to it
  }

  #kernels(): KernelExports {
    if (this.#opened) return this.#opened;
    throw new EdgeformerError("closed", "The translator is closed; open it again.");
  }

  #start(kernels: KernelExports, sources: readonly (readonly number[])[], listing: Listing | undefined): number {
    const tokens = this.scratch.wholes("tokens", sources.flat());
    const lengths = this.scratch.wholes(
      "lengths",
      sources.map((source) => source.length),
    );
    const batch = checked(kernels.edgeformer_start(this.model, tokens, lengths, BigInt(sources.length), 0, 0n));
    if (listing) {
      const listed = this.scratch.wholes("listed", listing.listed);
      const usable = this.scratch.bytes("usable", listing.usable);
      const isDone = kernels.edgeformer_restrict(batch, listed, BigInt(listing.listed.length), usable);
      if (!isDone) kernels.edgeformer_end(batch);
      checked(isDone);
    }
    return batch;
  }

  /** Writes `edgeformer_options`. */
  #options(options: PlainSearch): number {
    const suppressed = ascending(options.suppressed);
    const forbidden = ascending(options.forbidden);
    const suppressedAddress = this.scratch.wholes("suppressed", suppressed);
    const forbiddenAddress = this.scratch.wholes("forbidden", forbidden);
    const address = this.scratch.reserve("options", OPTIONS_BYTES);
    const view = new DataView(this.#kernels().memory.buffer, address, OPTIONS_BYTES);
    const { beams, hypotheses, places, shrinks, stopsEarly, countsEnd, followsPrefix, wantsScores } = options;
    const wholes = [beams, hypotheses, places, shrinks, stopsEarly, countsEnd, followsPrefix, wantsScores];
    for (const [i, value] of wholes.entries()) view.setBigInt64(8 * i, BigInt(value), true);
    view.setFloat64(64, options.lengthPenalty, true);
    view.setBigInt64(72, BigInt(options.givenLength), true);
    view.setBigInt64(80, BigInt(options.end), true);
    view.setUint32(88, suppressedAddress, true);
    view.setBigInt64(96, BigInt(suppressed.length), true);
    view.setUint32(104, forbiddenAddress, true);
    view.setBigInt64(112, BigInt(forbidden.length), true);
    view.setBigInt64(120, BigInt(options.loopRepeats), true);
    view.setBigInt64(128, BigInt(options.loopGiven), true);
    return address;
  }

  /** Makes room for `edgeformer_results` with `count` hypotheses of at most `room` tokens. */
  #resultsFor(count: number, room: number): { address: number; read(first: number, count: number): Hypothesis[] } {
    const token = this.scratch.reserve("result-tokens", 8 * count * room);
    const logs = this.scratch.reserve("result-log-probabilities", 8 * count * room);
    const counts = this.scratch.reserve("result-counts", 8 * count);
    const scores = this.scratch.reserve("result-scores", 8 * count);
    const finished = this.scratch.reserve("result-finished", count);
    const address = this.scratch.reserve("results", RESULTS_BYTES);
    const kernels = this.#kernels();
    const view = new DataView(kernels.memory.buffer, address, RESULTS_BYTES);
    view.setBigInt64(0, BigInt(room), true);
    for (const [i, each] of [token, logs, counts, scores, finished].entries()) view.setUint32(8 + 4 * i, each, true);
    const read = (first: number, most: number): Hypothesis[] => {
      const { buffer } = kernels.memory;
      const found: Hypothesis[] = [];
      for (let at = first; at < first + most; at++) {
        const length = new Int32Array(buffer, counts + 8 * at, 1)[0]!;
        if (length < 0) break;
        const isFinished = new Uint8Array(buffer, finished + at, 1)[0] === 1;
        const words = new Int32Array(buffer, token + 8 * at * room, 2 * length);
        const ids = Array.from({ length: length - Number(isFinished) }, (_, i) => words[2 * i]!);
        const tokenScores = [...new Float64Array(buffer, logs + 8 * at * room, length)];
        const score = new Float64Array(buffer, scores + 8 * at, 1)[0]!;
        found.push({ ids, score, finished: isFinished, tokenScores });
      }
      return found;
    };
    return { address, read };
  }
}

class KernelBatch implements EngineBatch {
  #batch: number;

  constructor(
    private readonly kernels: KernelExports,
    private readonly scratch: ScratchMemory,
    batch: number,
    private readonly width: number,
  ) {
    this.#batch = batch;
  }

  async step(tokens: readonly number[]): Promise<Float32Array> {
    const size = tokens.length * this.width;
    const logits = this.scratch.reserve("logits", 4 * size);
    checked(this.kernels.edgeformer_step(this.#batch, this.scratch.wholes("tokens", tokens), logits, BigInt(size)));
    return new Float32Array(this.kernels.memory.buffer, logits, size);
  }

  async select(rows: readonly number[]): Promise<void> {
    checked(this.kernels.edgeformer_select(this.#batch, this.scratch.wholes("tokens", rows), BigInt(rows.length)));
  }

  end(): void {
    if (this.#batch) this.kernels.edgeformer_end(this.#batch);
    this.#batch = 0;
    this.scratch.free();
  }
}

function ascending(numbers: readonly number[]): number[] {
  return [...numbers].sort((a, b) => a - b);
}

function checked(result: number): number {
  if (result) return result;
  throw new EdgeformerError(
    "engine",
    "The kernels cannot go on: an argument is out of range, or memory does not suffice.",
  );
}
