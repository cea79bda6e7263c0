/** Files in the file system of Node. Nothing else imports modules of Node, except the command. */
import { open, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { type Bytes, missing, type Source } from "./source.js";
import { zipSource } from "./zip.js";

/** The content of a file. */
export async function readLocalFile(address: URL): Promise<Bytes> {
  return new Uint8Array(await readFile(address));
}

/**
 * A folder, or a `.zip` file.
 *
 * @param location a path, or a `file:` address.
 * @throws EdgeformerError of kind `bundle`: it does not exist.
 */
export async function folderSource(location: string): Promise<Source> {
  const path = location.startsWith("file:") ? fileURLToPath(location) : location;
  const status = await stat(path).catch((error: NodeJS.ErrnoException) => {
    throw missing(path, "manifest.json", error.code ?? error.message);
  });
  if (status.isFile()) return zipSource(new Blob([await readFile(path)]), path);
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
