/**
 * What is kept of the bundles of an origin. Files are kept in parts by their hashes, so that an interrupted download goes
 * on, and bundles share what they have in common.
 *
 * 1. The manifest of a new version is kept as the next one of its address, then the parts of its files.
 * 2. When all of them are there, it becomes the version that is opened without a connection.
 * 3. At both steps, parts that no kept manifest lists are removed: of an address, there are at most two versions.
 *
 * Where storage fails, files are downloaded again.
 */
import type { Bytes } from "./source.js";
import type { Store } from "./storage.js";

/** Bytes of a part: what an interrupted download may lose. */
const PART = 2 ** 22;
const MANIFEST = "manifest-";
const HASH = /\b[0-9a-f]{64}\b/g;

/** What is kept of one bundle. */
export class StoredBundle {
  #next: Bytes | undefined;
  #isFull = false;

  private constructor(
    private readonly store: Store,
    private readonly name: string,
  ) {}

  /** @param address address of the bundle. */
  static async of(store: Store, address: string): Promise<StoredBundle> {
    return new StoredBundle(store, MANIFEST + (await hash(new TextEncoder().encode(address))));
  }

  /** The manifest of the version that is kept whole. */
  manifest(): Promise<Bytes | undefined> {
    return attempt(() => this.store.read(this.name));
  }

  /** Begins to keep a version. */
  async begin(manifest: Bytes): Promise<void> {
    const whole = await this.manifest();
    if (whole?.length === manifest.length && whole.every((byte, index) => byte === manifest[index])) return;
    this.#next = manifest;
    await this.#write(`${this.name}.next`, manifest);
    await this.#removeUnused();
  }

  /** Makes the version the one that is opened without a connection, if files with these hashes and sizes are kept. */
  async complete(files: readonly (readonly [sha256: string, size: number])[]): Promise<void> {
    const names = new Set(await attempt(() => this.store.names()));
    const isWhole = files.every(([sha256, size]) => partsOf(sha256, size).every((part) => names.has(part)));
    if (!this.#next || !isWhole || !(await this.#write(this.name, this.#next))) return;
    this.#next = undefined;
    await attempt(() => this.store.remove(`${this.name}.next`));
    await this.#removeUnused();
  }

  /** Copies the parts of a file that are kept without a gap, and returns their bytes. */
  async readInto(sha256: string, target: Bytes): Promise<number> {
    let loaded = 0;
    for (const name of partsOf(sha256, target.length)) {
      const part = await attempt(() => this.store.read(name));
      if (part?.length !== Math.min(PART, target.length - loaded)) break;
      target.set(part, loaded);
      loaded += part.length;
    }
    return loaded;
  }

  /** Keeps the parts of a file that are complete, and were not before. */
  async writeFrom(sha256: string, target: Bytes, before: number, loaded: number): Promise<void> {
    const names = partsOf(sha256, target.length);
    const count = loaded === target.length ? names.length : Math.floor(loaded / PART);
    for (let part = Math.floor(before / PART); part < count; part++)
      await this.#write(names[part]!, target.subarray(part * PART, (part + 1) * PART));
  }

  /** Removes a file, which may be damaged. */
  async forget(sha256: string, size: number): Promise<void> {
    for (const name of partsOf(sha256, size)) await attempt(() => this.store.remove(name));
  }

  /** Writes, in place of an older version if there is no room for both, and returns whether that was possible. */
  async #write(name: string, content: Bytes): Promise<boolean> {
    if (this.#isFull) return false;
    try {
      await this.store.write(name, content).catch(async (error) => {
        if (error?.name !== "QuotaExceededError") throw error;
        await this.store.remove(this.name);
        await this.#removeUnused();
        await this.store.write(name, content);
      });
    } catch (error) {
      this.#isFull = true;
      console.warn(`The model cannot be kept and will be downloaded again next time: ${error}`);
    }
    return !this.#isFull;
  }

  async #removeUnused(): Promise<void> {
    await attempt(async () => {
      const names = await this.store.names();
      const manifests = names.filter((name) => name.startsWith(MANIFEST)).map((name) => this.store.read(name));
      const texts = (await Promise.all(manifests)).map((manifest) => new TextDecoder().decode(manifest));
      const used = new Set(texts.flatMap((text) => text.match(HASH) ?? []));
      for (const name of names)
        if (!name.startsWith(MANIFEST) && !used.has(name.split(".")[0]!)) await this.store.remove(name);
    });
  }
}

/** SHA-256 in lower-case hexadecimal. */
export async function hash(data: Bytes): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The names of the parts of a file. */
function partsOf(sha256: string, size: number): string[] {
  return Array.from({ length: Math.ceil(size / PART) }, (_, part) => `${sha256}.${part}`);
}

/** What storage returns; undefined where it fails. */
async function attempt<T>(run: () => Promise<T>): Promise<T | undefined> {
  try {
    return await run();
  } catch {
    return undefined;
  }
}
