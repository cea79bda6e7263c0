/** Files in the file system of Node. Nothing else imports modules of Node. */
import { open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { type Bytes, missing, type Source } from "./source.js";

/** The content of a file. */
export async function readLocalFile(address: URL): Promise<Bytes> {
  return new Uint8Array(await readFile(address));
}

/** A folder, by its path or a `file:` address. */
export function folderSource(location: string): Source {
  const path = location.startsWith("file:") ? fileURLToPath(location) : location;
  return {
    label: path,
    isRemote: false,
    async open(name, from) {
      const file = await open(join(path, name)).catch((error: NodeJS.ErrnoException) => {
        throw missing(path, name, error.code ?? error.message);
      });
      const stream = Readable.toWeb(file.createReadStream({ start: from, highWaterMark: 2 ** 20 }));
      return { start: from, stream: stream as ReadableStream<Uint8Array> };
    },
  };
}
