/** A translator that works in a worker, so that a page stays responsive. */
import type { BundleLocation, Progress } from "../bundle/bundle.js";
import type { Manifest } from "../bundle/manifest.js";
import type { CallOptions, GoldenResult, TokenStep, Translation, Translator } from "../decoding/translation.js";
import type { OpenOptions } from "../decoding/translator.js";
import { EdgeformerError } from "../errors.js";
import type { Block } from "../text/block.js";
import type { BlockTranslation, TextOptions } from "../text/text_translator.js";
import { type Answer, fromWire, type Port, type Request, type Results } from "./protocol.js";

/** What a page does with the answers to a request. */
interface PendingRequest {
  resolve(result: Results[keyof Results]): void;
  reject(error: unknown): void;
  onStep?: ((step: TokenStep) => void) | undefined;
  onProgress?: ((progress: Progress) => void) | undefined;
}

/** Without the number of a request, which is given when it is sent. */
type RequestContent<R> = R extends Request ? Omit<R, "id"> : never;

/** Requests to a worker that are not answered yet. */
class Channel {
  readonly #pending = new Map<number, PendingRequest>();
  #last = 0;
  #failure: unknown;

  constructor(private readonly port: Port) {
    port.onmessage = ({ data }: MessageEvent<Answer>) => this.#receive(data);
  }

  /** Sends a request. If the signal gives it up, the worker is told, and the request fails with the signal's reason. */
  request<M extends keyof Results>(
    request: RequestContent<Request> & { method: M },
    signal?: AbortSignal,
    listeners: Pick<PendingRequest, "onStep" | "onProgress"> = {},
  ): Promise<Results[M]> {
    const id = ++this.#last;
    return new Promise<Results[M]>((resolve, reject) => {
      if (this.#failure) throw this.#failure;
      signal?.throwIfAborted();
      const cancel = () => {
        this.port.postMessage({ id, method: "cancel" } satisfies Request);
        this.#pending.get(id)?.reject(signal?.reason);
      };
      const ended = () => {
        signal?.removeEventListener("abort", cancel);
        this.#pending.delete(id);
      };
      signal?.addEventListener("abort", cancel);
      this.#pending.set(id, {
        ...listeners,
        resolve: (result) => {
          ended();
          resolve(result as Results[M]);
        },
        reject: (error) => {
          ended();
          reject(error);
        },
      });
      this.port.postMessage({ ...request, id });
    });
  }

  /** Lets everything fail that is not answered yet, and what is asked for later. */
  fail(error: unknown): void {
    this.#failure = error;
    for (const pending of [...this.#pending.values()]) pending.reject(error);
  }

  #receive(answer: Answer): void {
    const pending = this.#pending.get(answer.id);
    if (answer.kind === "step") pending?.onStep?.(answer.step);
    else if (answer.kind === "progress") pending?.onProgress?.(answer.progress);
    else if (answer.kind === "result") pending?.resolve(answer.result);
    else pending?.reject(fromWire(answer.error));
  }
}

/** A translator at the other end of a port. */
class RemoteTranslator implements Translator {
  readonly manifest: Manifest;
  readonly engine: "kernels" | "onnxruntime";
  readonly hasAttention: boolean;

  constructor(
    private readonly channel: Channel,
    { manifest, engine, hasAttention }: Results["open"],
    private readonly end: () => void,
  ) {
    [this.manifest, this.engine, this.hasAttention] = [manifest, engine, hasAttention];
  }

  translate(text: string, options?: CallOptions): Promise<Translation>;
  translate(texts: readonly string[], options?: CallOptions): Promise<Translation[]>;
  async translate(texts: string | readonly string[], options: CallOptions = {}): Promise<Translation | Translation[]> {
    if (typeof texts === "string") return (await this.translate([texts], options))[0]!;
    const { signal, ...changes } = options;
    return this.channel.request({ method: "translate", texts, options: changes }, signal);
  }

  async *translateTokens(text: string, options: CallOptions = {}): AsyncGenerator<TokenStep, void> {
    const { signal, ...changes } = options;
    const left = new AbortController();
    const stop = signal ? AbortSignal.any([signal, left.signal]) : left.signal;
    const reader = new ReadableStream<TokenStep>({
      start: (steps) =>
        void this.channel
          .request({ method: "steps", text, options: changes }, stop, { onStep: (step) => steps.enqueue(step) })
          .then(
            () => steps.close(),
            (error) => steps.error(error),
          ),
    }).getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        yield value;
      }
    } finally {
      left.abort();
    }
  }

  translateBlocks(
    blocks: readonly Block[],
    { signal, ...options }: CallOptions = {},
    textOptions: TextOptions = {},
  ): Promise<BlockTranslation[]> {
    return this.channel.request({ method: "blocks", blocks, options, textOptions }, signal);
  }

  verify(): Promise<GoldenResult> {
    return this.channel.request({ method: "verify" });
  }

  close(): void {
    this.end();
    this.channel.fail(new EdgeformerError("closed", "The translator is closed; open it again."));
  }
}

/**
 * Opens a bundle in a worker.
 *
 * @param location as for `openTranslator`; addresses are relative to the page.
 * @throws EdgeformerError: as for `openTranslator`; or of kind `engine`: the worker cannot be started.
 */
export async function openWorkerTranslator(location: BundleLocation, options: OpenOptions = {}): Promise<Translator> {
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  const failed = (event: ErrorEvent) =>
    channel.fail(new EdgeformerError("engine", `The worker has failed: ${event.message || "it cannot be loaded"}.`));
  const channel = new Channel(worker);
  worker.onerror = failed;
  try {
    return await openRemote(channel, location, options, () => worker.terminate());
  } catch (error) {
    worker.terminate();
    throw error;
  }
}

/** Opens a bundle at the other end of a port, where `serveTranslator` answers. */
export function openPortTranslator(
  port: Port,
  location: BundleLocation,
  options: OpenOptions = {},
): Promise<Translator> {
  const channel = new Channel(port);
  return openRemote(channel, location, options, () => void channel.request({ method: "close" }).catch(() => undefined));
}

async function openRemote(
  channel: Channel,
  location: BundleLocation,
  { onProgress, signal, storage, wasm, engine, onnxruntime }: OpenOptions,
  end: () => void,
): Promise<Translator> {
  if (storage || onnxruntime)
    throw new EdgeformerError(
      "option",
      "`storage` and `onnxruntime` cannot be posted; pass them to `serveTranslator`.",
    );
  const base = globalThis.location?.href;
  const absolute = (address: string | URL) => (base ? new URL(address, base).href : String(address));
  const isAddress = typeof location === "string" || location instanceof URL;
  const request = {
    method: "open" as const,
    location: isAddress ? absolute(location) : [...location],
    engine,
    wasm: typeof wasm === "string" || wasm instanceof URL ? absolute(wasm) : wasm,
    keeps: storage !== false,
  };
  return new RemoteTranslator(channel, await channel.request(request, signal, { onProgress }), end);
}
