/** Messages between a page and its worker. */
import type { BundleLocation, Progress } from "../bundle/bundle.js";
import type { CallOptions, GoldenResult, TokenStep, Translation, Translator } from "../decoding/translation.js";
import type { WasmSource } from "../engine/wasm.js";
import { EdgeformerError, type ErrorKind } from "../errors.js";
import type { Block } from "../text/block.js";
import type { BlockTranslation, TextOptions } from "../text/text_translator.js";

/** What a worker is asked for; answers have the same number. */
export type Request = { id: number } & (
  | {
      method: "open";
      location: BundleLocation;
      engine: "kernels" | "onnxruntime" | undefined;
      wasm: WasmSource | undefined;
      /** Whether downloads are kept. */
      keeps: boolean;
    }
  | { method: "translate"; texts: readonly string[]; options: CallOptions }
  | { method: "steps"; text: string; options: CallOptions }
  | { method: "blocks"; blocks: readonly Block[]; options: CallOptions; textOptions: TextOptions }
  | { method: "verify" }
  | { method: "close" }
  | { method: "cancel" }
);

/** What a worker returns for each method. */
export interface Results {
  open: Pick<Translator, "manifest" | "engine" | "hasAttention">;
  translate: Translation[];
  steps: undefined;
  blocks: BlockTranslation[];
  verify: GoldenResult;
  close: undefined;
}

/** What comes back: progress and steps while a request is worked on, then a result or an error. */
export type Answer = { id: number } & (
  | { kind: "progress"; progress: Progress }
  | { kind: "step"; step: TokenStep }
  | { kind: "result"; result: Results[keyof Results] }
  | { kind: "error"; error: WireError }
);

/** An error that keeps its kind on the way. */
export interface WireError {
  kind: ErrorKind | undefined;
  name: string;
  message: string;
}

/** One end of a channel: a worker, its own scope, or a message port. */
export interface Port {
  postMessage(message: unknown): void;
  onmessage: ((event: MessageEvent) => void) | null;
}

export function toWire(error: unknown): WireError {
  if (error instanceof EdgeformerError) return { kind: error.kind, name: error.name, message: error.message };
  const { name, message } = error instanceof Error ? error : { name: "Error", message: String(error) };
  return { kind: undefined, name, message };
}

export function fromWire({ kind, name, message }: WireError): Error {
  if (kind) return new EdgeformerError(kind, message);
  return Object.assign(new Error(message), { name });
}
