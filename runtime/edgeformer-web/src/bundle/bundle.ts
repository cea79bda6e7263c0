/** Opens bundles. No content is used before its hash has been checked. */
import { EdgeformerError } from "../errors.js";
import { isNode } from "../platform.js";
import type { FileReader } from "../tokenizer/interface.js";
import { MANIFEST_FILE, MANIFEST_HASH_FILE, MAX_MANIFEST_BYTES, type Manifest, parseManifest } from "./manifest.js";
import { type Bytes, filesSource, httpSource, type Source } from "./source.js";
import { originStorage, type Store } from "./storage.js";
import { hash, StoredBundle } from "./stored_bundle.js";

/** An HTTP address; in Node, a folder; or the files of a folder. */
export type BundleLocation = string | URL | Iterable<File>;

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

/** Milliseconds to wait before a broken download is continued, each time that nothing more has come. */
const WAITS = [500, 1000, 2000];
/** Milliseconds without a byte after which a connection is given up. */
const SILENCE = 30_000;

/** A bundle whose manifest has been checked. Files are checked when they are read. */
export class Bundle implements FileReader {
  readonly #loaded = new Map<string, number>();
  /** Files that have been read, by their names, and the number of those that are being read. */
  readonly #read = new Set<string>();
  #reading = 0;

  constructor(
    readonly manifest: Manifest,
    private readonly source: Source,
    private readonly kept: StoredBundle | undefined,
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
    this.#reading++;
    try {
      await this.#readChecked(name, target);
    } finally {
      this.#reading--;
    }
    this.#read.add(name);
    if (this.#reading || [...this.#loaded.keys()].some((expected) => !this.#read.has(expected))) return;
    const files = [...this.#read].map((file) => this.#entry(file));
    await this.kept?.complete(files.map(({ sha256, size }) => [sha256, size]));
  }

  /** Reads a file. What was kept, or came in parts, may be damaged: it is downloaded again, once. */
  async #readChecked(name: string, target: Bytes): Promise<void> {
    const { sha256 } = this.#entry(name);
    for (let isLast = !this.source.isRemote; ; isLast = true) {
      const loaded = (await this.kept?.readInto(sha256, target)) ?? 0;
      this.#report(name, loaded);
      await this.#load(name, sha256, target, loaded);
      if ((await hash(target)) === sha256) return;
      await this.kept?.forget(sha256, target.length);
      if (isLast) throw this.#damaged(`\`${name}\` does not match its SHA-256`);
    }
  }

  #entry(name: string): Manifest["files"][string] {
    const entry = Object.hasOwn(this.manifest.files, name) ? this.manifest.files[name] : undefined;
    if (entry) return entry;
    throw new EdgeformerError("bundle", `Bundle \`${this.label}\` has no \`${name}\`; export it again.`);
  }

  /** Reads the rest of a file, and keeps it part by part. */
  async #load(name: string, sha256: string, target: Bytes, loaded: number): Promise<void> {
    let failures = 0;
    for (let most = loaded; loaded < target.length; ) {
      let problem: unknown;
      try {
        for await (const [position, chunk] of chunksOf(this.source, name, loaded, this.options.signal)) {
          if (position + chunk.length > target.length) throw this.#wrongSize(name, target.length, "more");
          target.set(chunk, position);
          loaded = position + chunk.length;
          if (loaded > most) {
            await this.kept?.writeFrom(sha256, target, most, loaded);
            [failures, most] = [0, loaded];
          }
          this.#report(name, loaded);
        }
        problem = this.#wrongSize(name, target.length, `${loaded}`);
      } catch (error) {
        this.options.signal?.throwIfAborted();
        if (error instanceof EdgeformerError) throw error;
        problem = error;
      }
      if (loaded === target.length) return;
      await pause(this.source, failures++, this.#unreadable(name, problem), this.options.signal);
    }
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
  const kept = store && (await StoredBundle.of(store, source.label));
  const data = await readManifest(source, kept, options.signal);
  const manifest = parseManifest(data);
  await kept?.begin(data);
  return new Bundle(manifest, source, kept, options);
}

async function sourceOf(location: BundleLocation): Promise<Source> {
  if (typeof location !== "string" && !(location instanceof URL)) return filesSource(location);
  const address = String(location);
  if (!isNode || /^https?:/.test(address)) return httpSource(parsed(address));
  return (await import("./folder.js")).folderSource(address);
}

function parsed(address: string): URL {
  try {
    return new URL(address, globalThis.location?.href);
  } catch {
    throw new EdgeformerError("bundle", `\`${address}\` is not an address; give that of the bundle's folder.`);
  }
}

/** Reads the manifest and checks its hash; where the bundle cannot be reached, reads the one that is kept. */
async function readManifest(source: Source, kept: StoredBundle | undefined, signal?: AbortSignal): Promise<Bytes> {
  const refused = (why: string) => new EdgeformerError("bundle", `Bundle \`${source.label}\`${why}.`);
  for (let failures = 0; ; failures++) {
    let problem = refused(`: \`${MANIFEST_FILE}\` does not match its SHA-256; copy or export the bundle again`);
    try {
      const data = await readSmall(source, MANIFEST_FILE, signal);
      const line = new TextDecoder().decode(await readSmall(source, MANIFEST_HASH_FILE, signal));
      if (line === `${await hash(data)}  ${MANIFEST_FILE}\n`) return data; // else it may just be replaced
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof EdgeformerError) throw error;
      const offline = await kept?.manifest();
      if (offline) return offline;
      problem = refused(` cannot be reached (${message(error)})`);
    }
    await pause(source, failures, problem, signal);
  }
}

/** Waits after a failure, or raises the problem if it is not worth trying again. */
async function pause(source: Source, failures: number, problem: Error, signal?: AbortSignal): Promise<void> {
  const wait = WAITS[failures];
  if (!source.isRemote || wait === undefined) throw problem;
  await new Promise((resolve) => {
    setTimeout(resolve, wait);
    signal?.addEventListener("abort", resolve, { once: true });
  });
  signal?.throwIfAborted();
}

/** Waits for what comes over a network; a connection on which nothing comes any more is a broken one. */
async function arrived<T>(coming: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing has come for ${SILENCE / 1000} s`)), SILENCE);
  });
  return Promise.race([coming, late]).finally(() => clearTimeout(timer));
}

/** The chunks of a file from a position on, with their positions. */
async function* chunksOf(
  source: Source,
  name: string,
  from: number,
  signal?: AbortSignal,
): AsyncGenerator<[number, Uint8Array<ArrayBuffer>]> {
  signal?.throwIfAborted();
  const left = new AbortController();
  signal?.addEventListener("abort", () => left.abort(signal.reason), { signal: left.signal });
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  try {
    const { start, stream } = await arrived(source.open(name, from, left.signal));
    reader = stream.getReader();
    if (start > from) throw new Error(`the server sent byte ${start} in place of byte ${from}`);
    for (let position = start; ; ) {
      const { done, value } = await arrived(reader.read());
      if (done) return;
      yield [position, value as Bytes];
      position += value.length;
    }
  } finally {
    left.abort();
    await reader?.cancel().catch(() => undefined); // its failure has been raised by `read`
  }
}

async function readSmall(source: Source, name: string, signal?: AbortSignal): Promise<Bytes> {
  const chunks: Bytes[] = [];
  for await (const [position, chunk] of chunksOf(source, name, 0, signal)) {
    if (position + chunk.length > MAX_MANIFEST_BYTES)
      throw new EdgeformerError("bundle", `Bundle \`${source.label}\`: \`${name}\` has more than 16 MiB, the limit.`);
    chunks.push(chunk);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

function message(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
