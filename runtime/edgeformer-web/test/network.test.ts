import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { EdgeformerError, openBundle, type Progress, type Store } from "../src/index.js";
import { INT8, MemoryStore, random } from "./support.js";

const wait = globalThis.setTimeout;
/** Waits a hundredth of what is asked. */
const fast = ((run: () => void, time: number, ...given: []) => wait(run, time / 100, ...given)) as typeof setTimeout;
before(() => {
  globalThis.setTimeout = fast;
});
after(() => {
  globalThis.setTimeout = wait;
});

const FILES = ["weights.bin", "tokenizer.model"];
/** More than one part of 4 MiB. */
const SIZE = 5 * 2 ** 20;

type Content = Map<string, Buffer>;

const sha256 = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex");

/** A version of a bundle. */
function version(size = 2000, tokenizer = randomBytes(100)): Content {
  const manifest = JSON.parse(readFileSync(join(INT8, "manifest.json"), "utf8"));
  const files = new Map([
    ["weights.bin", randomBytes(size)],
    ["tokenizer.model", tokenizer],
  ]);
  for (const [name, data] of files) manifest.files[name] = { size: data.length, sha256: sha256(data) };
  files.set("manifest.json", Buffer.from(JSON.stringify(manifest)));
  files.set("manifest.json.sha256", Buffer.from(`${sha256(files.get("manifest.json")!)}  manifest.json\n`));
  return files;
}

interface Asked {
  name: string;
  from: number;
  data: Buffer;
  request: IncomingMessage;
}

/** Answers a request in another way than asked; some do so for requests of a range only. */
type Fault = (asked: Asked, response: ServerResponse) => unknown;

const status =
  (code: number): Fault =>
  (_, response) =>
    response.writeHead(code, { "Content-Length": 5 }).end("sorry");

/** What passes: the next request may be answered as it should be. */
const PASSING: Record<string, Fault> = {
  ...Object.fromEntries([408, 425, 429, 500, 502, 503, 504].map((code) => [`has status ${code}`, status(code)])),
  "has status 304": (_, response) => response.writeHead(304).end(),
  "never comes": () => undefined,
  "stops in the middle": ({ data, from }, response) => {
    response.writeHead(from ? 206 : 200, { "Content-Length": data.length - from });
    response.write(data.subarray(from, from + (data.length - from) / 2));
  },
  "is closed before the answer": ({ request }) => request.socket.destroy(),
  "is closed in the middle": ({ data, from }, response) => {
    response.writeHead(from ? 206 : 200, { "Content-Length": data.length - from });
    response.write(data.subarray(from, from + (data.length - from) / 2), () => wait(() => response.destroy(), 5));
  },
  "ends early, without an error": ({ data, from }, response) =>
    response.writeHead(from ? 206 : 200).end(data.subarray(from, from + (data.length - from) / 2)),
  "is empty": ({ from }, response) => response.writeHead(from ? 206 : 200).end(),
  "is of another page": (_, response) => response.writeHead(200).end("Log in."),
  "begins later": ({ data, from }, response) => {
    const first = Math.floor((from + data.length) / 2);
    const range = `bytes ${first}-${data.length - 1}/${data.length}`;
    response.writeHead(206, { "Content-Range": range }).end(data.subarray(first));
  },
  "has another byte": ({ data, from }, response) => {
    const damaged = Buffer.from(data.subarray(from));
    damaged[0]! ^= 1;
    response.writeHead(from ? 206 : 200).end(damaged);
  },
};
/** What does no harm. */
const HARMLESS: Record<string, Fault> = {
  "has no ranges": ({ data }, response) => response.writeHead(200, { "Content-Length": data.length }).end(data),
  "begins earlier": ({ data, from }, response) => {
    const first = Math.floor(from / 2);
    const range = `bytes ${first}-${data.length - 1}/${data.length}`;
    response.writeHead(first ? 206 : 200, { "Content-Range": range }).end(data.subarray(first));
  },
  "says another length": ({ data, from }, response) =>
    response.writeHead(from ? 206 : 200, { "Content-Encoding": "identity", "X-Length": 1 }).end(data.subarray(from)),
  "is redirected": ({ request }, response) => response.writeHead(302, { Location: `${request.url}?moved` }).end(),
  "comes in bytes": ({ data, from }, response) => {
    response.writeHead(from ? 206 : 200);
    for (const byte of data.subarray(from, from + 20)) response.write(Buffer.of(byte));
    response.end(data.subarray(from + 20));
  },
};

/** A server of versions by their folders. */
interface Site {
  address: string;
  folders: Map<string, Content>;
  /** Chooses the fault of a request; undefined answers as asked. */
  fault: (asked: Asked) => Fault | undefined;
  close(): void;
}

async function serve(content: Content = version()): Promise<Site> {
  const site: Site = { address: "", folders: new Map([["model", content]]), fault: () => undefined, close: () => {} };
  const server = createServer((request, response) => {
    const { pathname, search } = new URL(request.url!, "http://localhost");
    const [, folder, name] = pathname.split("/") as [string, string, string];
    const data = site.folders.get(folder)?.get(name);
    if (!data) return response.writeHead(404).end();
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    const fault = search ? undefined : site.fault({ name, from, data, request });
    if (fault) return fault({ name, from, data, request }, response);
    return response.writeHead(from ? 206 : 200, { "Content-Length": data.length - from }).end(data.subarray(from));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  site.address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  server.unref();
  site.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return site;
}

/** Opens a bundle and reads its files, both at once. */
async function read(site: Site, storage: Store | false, folder = "model", signal?: AbortSignal): Promise<Buffer[]> {
  const progress: Progress[] = [];
  const onProgress = (each: Progress) => progress.push(each);
  const bundle = await openBundle(`${site.address}/${folder}`, { storage, signal, onProgress });
  bundle.expect(FILES);
  const found = (await Promise.all(FILES.map((name) => bundle.read(name)))).map((data) => Buffer.from(data));
  const { loaded, total } = progress.at(-1)!;
  assert.deepEqual([loaded, total], [total, found.reduce((sum, { length }) => sum + length, 0)]);
  return found;
}

const contentOf = (content: Content): Buffer[] => FILES.map((name) => content.get(name)!);

for (const [does, fault] of Object.entries({ ...PASSING, ...HARMLESS }))
  test(`a bundle is read although an answer ${does}`, async () => {
    const content = version(200_000);
    const site = await serve(content);
    for (const wanted of content.keys())
      for (const isResumed of FILES.includes(wanted) ? [false, true] : [false]) {
        let left = 1;
        let breaks = isResumed ? 1 : 0;
        site.fault = ({ name, from }) => {
          if (name !== wanted || !left) return undefined;
          if (breaks && !from) return breaks-- ? PASSING["is closed in the middle"] : undefined;
          if (isResumed && !from) return undefined;
          left--;
          return fault;
        };
        assert.deepEqual(await read(site, new MemoryStore()), contentOf(content), `${wanted} ${isResumed}`);
        assert.equal(left, 0);
      }
    site.close();
  });

test("a bundle is read through any sequence of faults that do not repeat four times", async () => {
  for (let seed = 0; seed < 30; seed++) {
    const next = random(seed);
    const content = version(seed % 6 ? 20_000 : SIZE);
    const site = await serve(content);
    const faults = Object.entries({ ...PASSING, ...HARMLESS }).filter(([does]) => !/byte|another/.test(does));
    const failures = new Map<string, number>();
    const seen: string[] = [];
    site.fault = ({ name }) => {
      const kind = name.split(".")[0]!;
      const count = failures.get(kind) ?? 0;
      if (count >= 3 || next() < 0.2) return undefined;
      failures.set(kind, count + 1);
      const [does, fault] = faults[Math.floor(next() * faults.length)]!;
      seen.push(`${name} ${does}`);
      return fault;
    };
    assert.deepEqual(await read(site, new MemoryStore()), contentOf(content), `${seed}: ${seen.join(", ")}`);
    site.close();
  }
});

test("a bundle that cannot be reached is opened as it was kept", async () => {
  const content = version(SIZE);
  const site = await serve(content);
  const storage = new MemoryStore();
  await read(site, storage);
  for (const wanted of ["manifest.json", "manifest.json.sha256"])
    for (const [does, fault] of Object.entries(PASSING)) {
      if (/another|empty|early|later/.test(does)) continue; // an answer, though not the right one
      site.fault = ({ name }) => (name === wanted ? fault : status(503));
      assert.deepEqual(await read(site, storage), contentOf(content), `${wanted} ${does}`);
    }
  for (const code of [400, 401, 403, 404, 410]) {
    site.fault = () => status(code);
    await assert.rejects(
      read(site, storage),
      isSentence(new RegExp(`has no \`manifest.json\` \\(the server answered ${code}\\)`)),
    );
  }
  site.close();
  assert.deepEqual(await read(site, storage), contentOf(content));
  await assert.rejects(read(site, new MemoryStore()), isSentence(/cannot be reached/));
});

test("what was kept and is damaged is downloaded again", async () => {
  const content = version(SIZE);
  const site = await serve(content);
  const storage = new MemoryStore();
  await read(site, storage);
  for (const [name, data] of storage.content) if (/^[0-9a-f]{64}/.test(name)) data.fill(7, 10, 20);
  assert.deepEqual(await read(site, storage), contentOf(content));
  site.close();
});

function isSentence(pattern: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof EdgeformerError && error.kind === "bundle" && pattern.test(error.message);
}

test("what does not pass is refused in a sentence", async () => {
  for (const [does, fault] of Object.entries(PASSING))
    for (const wanted of ["manifest.json", "manifest.json.sha256", "weights.bin"]) {
      const site = await serve();
      site.fault = ({ name }) => (name === wanted ? fault : undefined);
      if (/middle$/.test(does) && wanted === "weights.bin") continue; // it goes on, half by half
      await assert.rejects(read(site, false), isSentence(/\.$/), `${does} ${wanted}`);
      site.close();
    }
});

test("a signal gives up at any request, at once", async () => {
  const reason = new Error("enough");
  for (const hangs of [true, false])
    for (const wanted of version().keys()) {
      const site = await serve();
      const controller = new AbortController();
      site.fault = ({ name }) => {
        if (name !== wanted) return undefined;
        wait(() => controller.abort(reason), 5);
        return hangs ? () => undefined : status(503);
      };
      const start = performance.now();
      globalThis.setTimeout = wait;
      await assert.rejects(read(site, new MemoryStore(), "model", controller.signal), reason);
      globalThis.setTimeout = fast;
      assert.ok(performance.now() - start < 400);
      site.close();
    }
});

/** The names of what a store needs for some versions, which it all has. */
function needed(...contents: Content[]): Set<string> {
  const parts = contents.flatMap((content) =>
    contentOf(content).flatMap((data) =>
      Array.from({ length: Math.ceil(data.length / 2 ** 22) }, (_, part) => `${sha256(data)}.${part}`),
    ),
  );
  return new Set(parts);
}

const partsIn = (storage: MemoryStore): Set<string> =>
  new Set([...storage.content.keys()].filter((name) => !name.startsWith("manifest-")));

test("storage does not grow over any sequence of versions, and what was opened last opens offline", async () => {
  for (let seed = 0; seed < 6; seed++) {
    const next = random(seed);
    const site = await serve();
    const storage = new MemoryStore();
    const tokenizers = [randomBytes(50), randomBytes(60)];
    const folders = ["model", "other"];
    const opened = new Map<string, Content>();
    for (let step = 0; step < 12; step++) {
      const folder = folders[Math.floor(next() * 2)]!;
      const content = version(
        next() < 0.3 ? SIZE : 500 + Math.floor(next() * 1000),
        tokenizers[Math.floor(next() * 2)]!,
      );
      site.folders.set(folder, content);
      const does = Math.floor(next() * 4);
      site.fault = ({ name }) =>
        does === 0 && name === "weights.bin" ? PASSING["is closed before the answer"] : undefined;
      if (does === 0) await assert.rejects(read(site, storage, folder));
      else if (does === 1)
        await Promise.all([read(site, storage, folder), read(site, storage, folder)]); // two tabs
      else await read(site, storage, folder);
      if (does) opened.set(folder, content);
      const most = needed(...opened.values(), ...site.folders.values());
      for (const part of partsIn(storage)) assert.ok(most.has(part), `${seed}: ${part} is left`);
      assert.ok(storage.content.size - partsIn(storage).size <= 2 * folders.length);
      site.fault = () => status(503);
      for (const [kept, version] of opened) assert.deepEqual(await read(site, storage, kept), contentOf(version));
    }
    site.fault = () => undefined;
    for (const folder of site.folders.keys()) await read(site, storage, folder);
    assert.deepEqual(partsIn(storage), needed(...site.folders.values()));
    site.close();
  }
});

test("two tabs that open two versions at once leave one of them whole", async () => {
  for (let seed = 0; seed < 30; seed++) {
    const site = await serve(version(3000));
    const storage = new MemoryStore();
    const [old, fresh] = [site.folders.get("model")!, version(4000)];
    const next = random(seed);
    site.fault = () => {
      if (next() < 0.3) site.folders.set("model", fresh);
      return ({ data, from, name }, response) =>
        wait(() => response.writeHead(from ? 206 : 200).end(data.subarray(from)), name ? 20 * next() : 0);
    };
    const found = await Promise.allSettled([read(site, storage), read(site, storage), read(site, storage)]);
    site.folders.set("model", fresh);
    site.fault = () => undefined;
    assert.deepEqual(await read(site, storage), contentOf(fresh), String(found.length));
    site.fault = () => status(503);
    assert.deepEqual(await read(site, storage), contentOf(fresh));
    assert.deepEqual(partsIn(storage), needed(fresh));
    assert.notDeepEqual(contentOf(old), contentOf(fresh));
    site.close();
  }
});

/** A store that fails at one of its calls, or from one on. */
class FailingStore extends MemoryStore {
  calls = 0;

  constructor(
    private readonly fails: (call: number) => boolean,
    content?: MemoryStore,
  ) {
    super();
    for (const [name, data] of content?.content ?? []) this.content.set(name, data);
  }

  private check(): void {
    if (this.fails(this.calls++)) throw new DOMException("It is denied.", "UnknownError");
  }

  override async read(name: string) {
    this.check();
    return super.read(name);
  }

  override async write(name: string, content: Uint8Array<ArrayBuffer>) {
    this.check();
    return super.write(name, content);
  }

  override async remove(name: string) {
    this.check();
    return super.remove(name);
  }

  override async names() {
    this.check();
    return super.names();
  }
}

test("storage that fails at any call costs a download, and nothing else", async () => {
  const site = await serve(version(SIZE));
  const old = new MemoryStore();
  await read(site, old);
  const content = version(SIZE);
  const contents = [site.folders.get("model")!, content];
  site.folders.set("model", content);
  const warn = console.warn;
  console.warn = () => undefined;
  for (const isForever of [false, true])
    for (let call = 0; ; call++) {
      const store = new FailingStore((number) => (isForever ? number >= call : number === call), old);
      assert.deepEqual(await read(site, store), contentOf(content));
      const mended = new FailingStore(() => false, store);
      site.fault = () => status(503);
      const [weights] = await read(site, mended);
      assert.ok(contents.some((each) => each.get("weights.bin")!.equals(weights!))); // the old or the new one
      site.fault = () => undefined;
      assert.deepEqual(await read(site, mended), contentOf(content));
      if (store.calls <= call) break;
    }
  console.warn = warn;
  site.close();
});

/** A store with room for some bytes of files. */
class SmallStore extends MemoryStore {
  constructor(private readonly room: number) {
    super();
  }

  override async write(name: string, content: Uint8Array<ArrayBuffer>) {
    const others = [...this.content].filter(([other]) => other !== name && !other.startsWith("manifest-"));
    const size = others.reduce((sum, [, data]) => sum + data.length, 0);
    if (size + content.length > this.room && !name.startsWith("manifest-"))
      throw new DOMException("Quota exceeded.", "QuotaExceededError");
    return super.write(name, content);
  }
}

test("a new version takes the place of the old one where there is no room for both", async () => {
  const site = await serve();
  const storage = new SmallStore(8000);
  for (const size of [3000, 4500, 6000, 7500, 1000, 7000, 2000]) {
    const content = version(size);
    site.folders.set("model", content);
    site.fault = () => undefined;
    assert.deepEqual(await read(site, storage), contentOf(content));
    site.fault = () => status(503);
    assert.deepEqual(await read(site, storage), contentOf(content));
    assert.deepEqual(partsIn(storage), needed(content));
  }
  site.close();
});

test("no more of a manifest is read than it may have", async () => {
  const site = await serve();
  let sent = 0;
  site.fault = ({ request }) => {
    return (_, response) => {
      response.writeHead(200);
      const send = () => {
        while (!request.destroyed && !response.destroyed && response.write(Buffer.alloc(2 ** 20))) sent++;
        if (!response.destroyed && sent < 200) response.once("drain", send);
      };
      send();
    };
  };
  await assert.rejects(read(site, false), isSentence(/more than 16 MiB/));
  assert.ok(sent < 60, `${sent} MiB were sent`);
  site.close();
});
