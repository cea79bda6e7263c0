/** Keeps what was downloaded in the origin private file system, so that models work offline. */
import type { Bytes } from "./source.js";

/** Content by name. Large files are kept in parts, so that a download that was interrupted goes on. */
export interface Store {
  /** The content; undefined if there is none. */
  read(name: string): Promise<Bytes | undefined>;
  /** Writes the whole content or nothing. */
  write(name: string, content: Bytes): Promise<void>;
  remove(name: string): Promise<void>;
}

const FOLDER = "edgeformer";

/** The storage of this page's origin; undefined where there is none, as in Node, or it is denied. */
export async function originStorage(): Promise<Store | undefined> {
  if (typeof navigator === "undefined" || !navigator.storage?.getDirectory) return undefined;
  let folder: FileSystemDirectoryHandle;
  try {
    const root = await navigator.storage.getDirectory();
    folder = await root.getDirectoryHandle(FOLDER, { create: true });
  } catch (error) {
    console.warn(`The model cannot be kept and will be downloaded again next time: ${error}`); // as in private windows
    return undefined;
  }
  return {
    async read(name) {
      const handle = await folder.getFileHandle(name).catch(ignoreMissing);
      return handle && new Uint8Array(await (await handle.getFile()).arrayBuffer());
    },
    async write(name, content) {
      const writable = await (await folder.getFileHandle(name, { create: true })).createWritable();
      await writable.write(content);
      await writable.close();
    },
    async remove(name) {
      await folder.removeEntry(name).catch(ignoreMissing);
    },
  };
}

/** Deletes everything that this package has kept for the page's origin. */
export async function clearStorage(): Promise<void> {
  const root = await navigator.storage.getDirectory();
  await root.removeEntry(FOLDER, { recursive: true }).catch(ignoreMissing);
}

function ignoreMissing(error: unknown): undefined {
  if (error instanceof DOMException && error.name === "NotFoundError") return undefined;
  throw error;
}
