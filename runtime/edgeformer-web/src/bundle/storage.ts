/** Keeps what was downloaded in the cache storage of the page's origin, which every browser has, so that models work offline. */
import type { Bytes } from "./source.js";

/** Content by name. Large files are kept in parts, so that a download that was interrupted goes on. */
export interface Store {
  /** The content; undefined if there is none. */
  read(name: string): Promise<Bytes | undefined>;
  /** Writes the whole content or nothing. */
  write(name: string, content: Bytes): Promise<void>;
  remove(name: string): Promise<void>;
  /** The names of all content. */
  names(): Promise<string[]>;
}

const CACHE = "edgeformer";
/** Entries of a cache have addresses; nothing is ever requested from this one. */
const BASE = "https://edgeformer.invalid/";

/** The storage of this page's origin; undefined where there is none, as in Node, or it is denied. */
export async function originStorage(): Promise<Store | undefined> {
  let cache: Cache | undefined;
  try {
    cache = await globalThis.caches?.open(CACHE);
  } catch (error) {
    console.warn(`The model cannot be kept and will be downloaded again next time: ${error}`); // as in private windows
  }
  return (
    cache && {
      async read(name) {
        const kept = await cache.match(BASE + name);
        return kept && new Uint8Array(await kept.arrayBuffer());
      },
      write: (name, content) => cache.put(BASE + name, new Response(content)),
      async remove(name) {
        await cache.delete(BASE + name);
      },
      names: async () => (await cache.keys()).map(({ url }) => url.slice(BASE.length)),
    }
  );
}

/** Deletes everything that this package has kept for the page's origin. */
export async function clearStorage(): Promise<void> {
  await globalThis.caches?.delete(CACHE);
}
