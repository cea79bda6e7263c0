/** What several tests use. */
import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
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

/** A server of a folder's files. */
export interface FolderServer {
  address: string;
  /** What was asked for: names, with the first byte of a range. */
  requests: string[];
  /** Closes the connection in the middle of the next response for this file. */
  breakOnce: string;
  close(): Promise<void>;
}

/** Serves a folder, with ranges. */
export async function serve(folder: string): Promise<FolderServer> {
  const state: FolderServer = { address: "", requests: [], breakOnce: "", close: async () => undefined };
  const server = createServer((request, response) => {
    const name = (request.url ?? "").slice(1);
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    state.requests.push(from ? `${name}@${from}` : name);
    const size = statSync(join(folder, name), { throwIfNoEntry: false })?.size;
    if (size === undefined) return response.writeHead(404).end();
    response.writeHead(from ? 206 : 200, { "Content-Length": size - from });
    const isBroken = state.breakOnce === name;
    if (isBroken) state.breakOnce = "";
    const file = createReadStream(join(folder, name), { start: from, ...(isBroken ? { end: from + size / 2 } : {}) });
    if (!isBroken) return file.pipe(response);
    file.pipe(response, { end: false });
    return file.on("end", () => setTimeout(() => response.destroy(), 50));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  state.address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  state.close = async () => {
    server.closeAllConnections();
    server.close();
  };
  return state;
}
