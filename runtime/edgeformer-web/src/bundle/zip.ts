/** Bundles in a `.zip`, whose files are stored or deflated. */
import { EdgeformerError } from "../errors.js";
import { missing, type Source } from "./source.js";

/** The end of a directory has 22 bytes and a comment of up to 65,535. */
const END_BYTES = 22;
const END = 0x06054b50;
const ENTRY = 0x02014b50;
const MAX_ENTRIES = 10_000;

interface Entry {
  name: string;
  isDeflated: boolean;
  /** Bytes in the archive. */
  size: number;
  /** Position of its local header. */
  header: number;
}

/**
 * Reads the directory of a `.zip`. The bundle is in the folder of the first `manifest.json`.
 *
 * @throws EdgeformerError of kind `bundle`: it is not a `.zip`, or has no manifest.
 */
export async function zipSource(archive: Blob, label: string): Promise<Source> {
  const entries = await directory(archive, label);
  const manifest = entries.find(({ name }) => name === "manifest.json" || name.endsWith("/manifest.json"));
  if (!manifest) throw missing(label, "manifest.json", `the archive has ${entries.length} files`);
  const folder = manifest.name.slice(0, -"manifest.json".length);
  const byName = new Map(entries.map((entry) => [entry.name, entry]));
  return {
    label,
    isRemote: false,
    async open(name, from) {
      const entry = byName.get(folder + name);
      if (!entry) throw missing(label, name, `the archive has ${entries.length} files`);
      const local = await view(archive, entry.header, entry.header + 30);
      const start = entry.header + 30 + local.getUint16(26, true) + local.getUint16(28, true);
      const stored = archive.slice(start, start + entry.size);
      if (!entry.isDeflated) return { start: from, stream: stored.slice(from).stream() };
      return { start: 0, stream: stored.stream().pipeThrough(new DecompressionStream("deflate-raw")) };
    },
  };
}

async function directory(archive: Blob, label: string): Promise<Entry[]> {
  const tail = await view(archive, Math.max(0, archive.size - END_BYTES - 65_535), archive.size);
  let end = tail.byteLength - END_BYTES;
  while (end >= 0 && tail.getUint32(end, true) !== END) end--;
  const count = end < 0 ? 0 : tail.getUint16(end + 10, true);
  if (end < 0 || count > MAX_ENTRIES)
    throw new EdgeformerError("bundle", `Bundle \`${label}\` is not a .zip file; give the folder or its .zip.`);
  const start = tail.getUint32(end + 16, true);
  const list = await view(archive, start, start + tail.getUint32(end + 12, true));
  const entries: Entry[] = [];
  for (let at = 0; entries.length < count && at + 46 <= list.byteLength && list.getUint32(at, true) === ENTRY; ) {
    const [nameLength, extra, comment] = [28, 30, 32].map((field) => list.getUint16(at + field, true));
    const name = new TextDecoder().decode(new Uint8Array(list.buffer, at + 46, nameLength));
    const size = list.getUint32(at + 20, true);
    entries.push({
      name,
      isDeflated: list.getUint16(at + 10, true) === 8,
      size,
      header: list.getUint32(at + 42, true),
    });
    at += 46 + nameLength! + extra! + comment!;
  }
  return entries;
}

async function view(archive: Blob, start: number, end: number): Promise<DataView> {
  return new DataView(await archive.slice(start, end).arrayBuffer());
}
