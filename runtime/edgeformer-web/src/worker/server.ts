/** Answers the messages of a page with a translator. */
import type { Progress } from "../bundle/bundle.js";
import type { Translator } from "../decoding/translation.js";
import { type OpenOptions, openTranslator } from "../decoding/translator.js";
import { EdgeformerError } from "../errors.js";
import { type Answer, type Port, type Request, type Results, toWire } from "./protocol.js";

/**
 * Answers what comes through a port, with one translator.
 *
 * @param own what cannot be posted, such as `onnxruntime`.
 */
export function serveTranslator(port: Port, own: OpenOptions = {}): void {
  let translator: Translator | undefined;
  const running = new Map<number, AbortController>();
  const send = (answer: Answer) => port.postMessage(answer);

  const opened = (): Translator => {
    if (translator) return translator;
    throw new EdgeformerError("closed", "The translator is not open; open it again.");
  };

  async function answered(request: Request, signal: AbortSignal): Promise<Results[keyof Results]> {
    const { id } = request;
    switch (request.method) {
      case "open": {
        const { location, engine, wasm, keeps } = request;
        const onProgress = (progress: Progress) => send({ id, kind: "progress", progress });
        const storage = keeps ? own.storage : false;
        translator = await openTranslator(location, { ...own, engine, wasm, signal, onProgress, storage });
        const { manifest, engine: runs, hasAttention } = translator;
        return { manifest, engine: runs, hasAttention };
      }
      case "translate":
        return opened().translate(request.texts, { ...request.options, signal });
      case "steps":
        for await (const step of opened().translateTokens(request.text, { ...request.options, signal }))
          send({ id, kind: "step", step });
        return undefined;
      case "blocks":
        return opened().translateBlocks(request.blocks, { ...request.options, signal }, request.textOptions);
      case "verify":
        return opened().verify();
      case "close":
        opened().close();
        return undefined;
      case "cancel":
        return undefined;
    }
  }

  port.onmessage = async ({ data }: MessageEvent<Request>) => {
    if (data.method === "cancel") return running.get(data.id)?.abort();
    const controller = new AbortController();
    running.set(data.id, controller);
    try {
      send({ id: data.id, kind: "result", result: await answered(data, controller.signal) });
    } catch (error) {
      send({ id: data.id, kind: "error", error: toWire(error) });
    } finally {
      running.delete(data.id);
    }
  };
}
