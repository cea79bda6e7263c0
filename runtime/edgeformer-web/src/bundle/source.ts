/** Where the files of a bundle come from: an HTTP address, or files that the user gave. Folders are in `folder.ts`. */
import { EdgeformerError } from "../errors.js";

export type Bytes = Uint8Array<ArrayBuffer>;

/** A file from some position on. */
export interface OpenedFile {
  /** Position of the first byte of the stream: the one that was asked for, or 0. */
  start: number;
  stream: ReadableStream<Uint8Array>;
}

/** Where the files of a bundle come from. */
export interface Source {
  /** How errors name the bundle. */
  readonly label: string;
  /** Whether files come over a network, so that they are kept, and a broken stream is worth opening again. */
  readonly isRemote: boolean;

  /**
   * Opens a file.
   *
   * @param from position of the first byte that is wanted.
   * @throws EdgeformerError of kind `bundle`: there is no such file. Other errors may pass.
   */
  open(name: string, from: number, signal?: AbortSignal): Promise<OpenedFile>;
}

/** The error of a file that a source lacks. */
export function missing(label: string, name: string, why: string): EdgeformerError {
  const hint = name === "manifest.json" ? " Give the folder that `edgeformer export` wrote." : " Copy it again.";
  return new EdgeformerError("bundle", `Bundle \`${label}\` has no \`${name}\` (${why}).${hint}`);
}

/** Whether an answer means that there is no such file, rather than that it cannot be had now. */
const isFinal = (status: number): boolean => status >= 400 && status < 500 && ![408, 425, 429].includes(status);

/** Files below an HTTP address. */
export function httpSource(base: URL): Source {
  const folder = new URL(base);
  if (!folder.pathname.endsWith("/")) folder.pathname += "/";
  return {
    label: base.href,
    isRemote: true,
    async open(name, from, signal) {
      const headers: HeadersInit = from > 0 ? { Range: `bytes=${from}-` } : {};
      const address = new URL(encodeURIComponent(name), folder);
      const response = await fetch(address, { headers, signal: signal ?? null, cache: "no-cache" });
      if (!response.ok || !response.body) {
        await response.body?.cancel();
        const why = `the server answered ${response.status}`;
        throw isFinal(response.status) ? missing(base.href, name, why) : new Error(why);
      }
      const [, first] = /^bytes (\d+)-/.exec(response.headers.get("Content-Range") ?? "") ?? []; // other origins hide it
      return { start: response.status === 206 ? Number(first ?? from) : 0, stream: response.body };
    },
  };
}

/** Files that the user gave, such as those of a folder picker; only their last names matter. */
export function filesSource(files: Iterable<File>): Source {
  const byName = new Map([...files].map((file) => [file.name, file]));
  const label = byName.get("manifest.json")?.webkitRelativePath?.split("/").at(-2) ?? "of the given files";
  return {
    label,
    isRemote: false,
    async open(name, from) {
      const file = byName.get(name);
      if (!file) throw missing(label, name, `it has ${byName.size} files`);
      return { start: from, stream: file.slice(from).stream() };
    },
  };
}
