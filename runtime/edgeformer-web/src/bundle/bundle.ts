/** Opens bundles. No content is used before its hash has been checked. */
import { EdgeformerError } from "../errors.js";
import { isNode } from "../platform.js";
import type { FileReader } from "../tokenizer/interface.js";
import { MANIFEST_FILE, MANIFEST_HASH_FILE, MAX_MANIFEST_BYTES, type Manifest, parseManifest } from "./manifest.js";
import { type Bytes, filesSource, httpSource, type Source } from "./source.js";
import { originStorage, type Store } from "./storage.js";
import { zipSource } from "./zip.js";

/** An HTTP address; in Node, a folder or a `.zip`; a `.zip` as a `Blob`; or the files of a folder. */
export type BundleLocation = string | URL | Blob | Iterable<File>;

/** How far the files have come that a translator needs, in bytes. */
export interface Progress {
  /** The file that has just grown. */
  file: string;
  loaded: number;
  total: number;
}

/** How to open a bundle. */
export interface OpenBundleOptions {
  onProgress?: ((progress: Progress) => void) | undefined;
  signal?: AbortSignal | undefined;
  /** Where downloads are kept: by default the cache storage of the origin; `false` keeps nothing. */
  storage?: Store | false | undefined;
}

/** Bytes of a part of a kept file: what an interrupted download may lose. */
const PART = 2 ** 22;
/** Milliseconds to wait before a broken download is continued, each time that nothing more has come. */
const WAITS = [500, 1000, 2000];

/** A bundle whose manifest has been checked. Files are checked when they are read. */
export class Bundle implements FileReader {
  readonly #loaded = new Map<string, number>();
  #isFull = false;

  constructor(
    readonly manifest: Manifest,
    private readonly source: Source,
    private readonly store: Store | undefined,
    private readonly options: OpenBundleOptions,
  ) {}

  /** How errors name the bundle. */
  get label(): string {
    return this.source.label;
  }

  /** Counts files among those whose progress is reported. */
  expect(names: Iterable<string>): void {
    for (const name of names) this.#loaded.set(name, 0);
  }

  /** @throws EdgeformerError of kind `bundle`: the manifest does not list the file. */
  size(name: string): number {
    return this.#entry(name).size;
  }

  /** Reads a file; see {@link FileReader.read}. */
  async read(name: string): Promise<Bytes> {
    const target = new Uint8Array(this.#entry(name).size);
    await this.readInto(name, target);
    return target;
  }

  /**
   * Reads a file into memory, `size(name)` bytes, from what is kept and then from where the bundle is.
   *
   * @throws EdgeformerError of kind `bundle`: the file is not listed, cannot be read, or is damaged.
   */
  async readInto(name: string, target: Bytes): Promise<void> {
    const { sha256 } = this.#entry(name);
    const kept = await this.#readKept(name, sha256, target);
    await this.#load(name, sha256, target, kept);
    if ((await hash(target)) === sha256) return;
    await this.#forget(sha256, target.length);
    if (kept > 0) return this.readInto(name, target); // what was kept may be damaged, what is downloaded not
    throw this.#damaged(`\`${name}\` does not match its SHA-256`);
  }

  #entry(name: string): Manifest["files"][string] {
    const entry = Object.hasOwn(this.manifest.files, name) ? this.manifest.files[name] : undefined;
    if (entry) return entry;
    throw new EdgeformerError("bundle", `Bundle \`${this.label}\` has no \`${name}\`; export it again.`);
  }

  /** Copies the parts of a file that are kept, and returns their bytes. */
  async #readKept(name: string, sha256: string, target: Bytes): Promise<number> {
    let loaded = 0;
    while (this.store && loaded < target.length) {
      const part = await this.store.read(partName(sha256, loaded));
      if (part?.length !== Math.min(PART, target.length - loaded)) break;
      target.set(part, loaded);
      loaded += part.length;
      this.#report(name, loaded);
    }
    return loaded;
  }

  /** Reads the rest of a file, and keeps it part by part. */
  async #load(name: string, sha256: string, target: Bytes, loaded: number): Promise<void> {
    let failures = 0;
    let [kept, most] = [loaded, loaded];
    while (loaded < target.length) {
      try {
        for await (const [position, chunk] of this.#chunks(name, loaded)) {
          if (position + chunk.length > target.length) throw this.#wrongSize(name, target.length, "more");
          target.set(chunk, position);
          loaded = position + chunk.length;
          if (loaded > most) failures = 0;
          most = Math.max(most, loaded);
          for (; kept + PART <= loaded || (kept < loaded && loaded === target.length); kept += PART)
            await this.#keep(partName(sha256, kept), target.subarray(kept, Math.min(kept + PART, loaded)));
          this.#report(name, loaded);
        }
        if (loaded < target.length) throw this.#wrongSize(name, target.length, `${loaded}`);
      } catch (error) {
        const wait = WAITS[failures++];
        this.options.signal?.throwIfAborted();
        if (error instanceof EdgeformerError || !this.source.isRemote || wait === undefined)
          throw this.#unreadable(name, error);
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }

  /** The chunks of a file from a position on, with their positions. */
  async *#chunks(name: string, from: number): AsyncGenerator<[number, Uint8Array]> {
    const { start, stream } = await this.source.open(name, from, this.options.signal);
    const reader = stream.getReader();
    try {
      for (let position = start; ; ) {
        const { done, value } = await reader.read();
        if (done) return;
        yield [position, value];
        position += value.length;
      }
    } finally {
      await reader.cancel().catch(() => undefined); // its failure has been raised by `read`
    }
  }

  async #keep(name: string, content: Bytes): Promise<void> {
    if (!this.store || this.#isFull) return;
    try {
      await this.store.write(name, content);
    } catch (error) {
      this.#isFull = true;
      console.warn(`The model cannot be kept and will be downloaded again next time: ${message(error)}`);
    }
  }

  async #forget(sha256: string, size: number): Promise<void> {
    for (let at = 0; at < size; at += PART) await this.store?.remove(partName(sha256, at));
  }

  #report(name: string, loaded: number): void {
    if (!this.#loaded.has(name)) return;
    this.#loaded.set(name, loaded);
    let [sum, total] = [0, 0];
    for (const [file, bytes] of this.#loaded) {
      sum += bytes;
      total += this.size(file);
    }
    this.options.onProgress?.({ file: name, loaded: sum, total });
  }

  #wrongSize(name: string, size: number, found: string): EdgeformerError {
    return this.#damaged(`\`${name}\` has ${found} bytes instead of ${size}`);
  }

  #damaged(what: string): EdgeformerError {
    return new EdgeformerError("bundle", `Bundle \`${this.label}\` is damaged: ${what}. Copy or export it again.`);
  }

  #unreadable(name: string, error: unknown): EdgeformerError {
    if (error instanceof EdgeformerError) return error;
    return new EdgeformerError("bundle", `Bundle \`${this.label}\`: \`${name}\` cannot be read (${message(error)}).`);
  }
}

/**
 * Opens a bundle and checks its manifest. Without a connection, a bundle that was opened before is opened from what was
 * kept.
 *
 * @throws EdgeformerError of kind `bundle`: it is missing, damaged, or of another revision.
 */
export async function openBundle(location: BundleLocation, options: OpenBundleOptions = {}): Promise<Bundle> {
  if (!globalThis.crypto?.subtle)
    throw new EdgeformerError("engine", "Bundles can be checked in a secure context only: use https or localhost.");
  const source = await sourceOf(location);
  const store = source.isRemote ? (options.storage ?? (await originStorage())) || undefined : undefined;
  const data = await readManifest(source, store, options.signal);
  return new Bundle(parseManifest(data), source, store, options);
}

async function sourceOf(location: BundleLocation): Promise<Source> {
  if (location instanceof Blob) return zipSource(location, location instanceof File ? location.name : "of the archive");
  if (typeof location !== "string" && !(location instanceof URL)) return filesSource(location);
  const address = String(location);
  if (!isNode || /^https?:/.test(address)) return httpSource(parsed(address));
  const { folderSource } = await import("./folder.js");
  return folderSource(address);
}

function parsed(address: string): URL {
  try {
    return new URL(address, globalThis.location?.href);
  } catch {
    throw new EdgeformerError("bundle", `\`${address}\` is not an address; give that of the bundle's folder.`);
  }
}

/** Reads the manifest and checks its hash. */
async function readManifest(source: Source, store: Store | undefined, signal?: AbortSignal): Promise<Bytes> {
  const kept = `manifest-${await hash(new TextEncoder().encode(source.label))}`;
  let data: Bytes;
  let line: string;
  try {
    data = await readSmall(source, MANIFEST_FILE, signal);
    line = new TextDecoder().decode(await readSmall(source, MANIFEST_HASH_FILE, signal));
  } catch (error) {
    if (error instanceof EdgeformerError) throw error;
    signal?.throwIfAborted();
    const offline = await store?.read(kept);
    if (offline) return offline;
    throw new EdgeformerError("bundle", `Bundle \`${source.label}\` cannot be reached (${message(error)}).`);
  }
  if (line !== `${await hash(data)}  ${MANIFEST_FILE}\n`)
    throw new EdgeformerError(
      "bundle",
      `Bundle \`${source.label}\`: \`${MANIFEST_FILE}\` does not match its SHA-256; copy or export the bundle again.`,
    );
  await store?.write(kept, data).catch(() => undefined); // storage that is full is reported with the weights
  return data;
}

async function readSmall(source: Source, name: string, signal?: AbortSignal): Promise<Bytes> {
  const { stream } = await source.open(name, 0, signal);
  const data = new Uint8Array(await new Response(stream as ReadableStream<Bytes>).arrayBuffer());
  if (data.length <= MAX_MANIFEST_BYTES) return data;
  throw new EdgeformerError("bundle", `Bundle \`${source.label}\`: \`${name}\` has more than 16 MiB, the limit.`);
}

/** SHA-256 in lower-case hexadecimal. */
async function hash(data: Bytes): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function partName(sha256: string, position: number): string {
  return `${sha256}.${position / PART}`;
}

function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
