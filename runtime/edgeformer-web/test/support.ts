/** What several tests use. */
import { fileURLToPath } from "node:url";
import type { Store } from "../src/index.js";

/** A committed bundle with a plan. */
export const INT8 = fileURLToPath(new URL("../../../../tests/runtime/bundles/int8", import.meta.url));
/** Sentences of the language of that bundle, each another one. */
export const SENTENCES = ["dog", "cat", "river", "machine"].flatMap((noun) =>
  ["small", "old", "green"].flatMap((adjective) =>
    ["2", "14", "350"].map((number) => `The ${adjective} ${noun} runs ${number} times near the sea.`),
  ),
);

/** Numbers from 0 to below 1, the same for the same seed. */
export function random(seed: number): () => number {
  let state = seed + 1;
  return () => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) / 2 ** 24;
  };
}

/** A store that is lost with the process. */
export class MemoryStore implements Store {
  readonly content = new Map<string, Uint8Array<ArrayBuffer>>();

  async read(name: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.content.get(name)?.slice();
  }

  async write(name: string, content: Uint8Array<ArrayBuffer>): Promise<void> {
    this.content.set(name, content.slice());
  }

  async remove(name: string): Promise<void> {
    this.content.delete(name);
  }

  async names(): Promise<string[]> {
    return [...this.content.keys()];
  }
}
