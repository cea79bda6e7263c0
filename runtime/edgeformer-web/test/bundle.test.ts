import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { parseManifest } from "../src/bundle/manifest.js";
import { planNumbers } from "../src/bundle/plan.js";
import { EdgeformerError, openBundle } from "../src/index.js";
import { INT8 } from "./support.js";

const folder = mkdtempSync(join(tmpdir(), "edgeformer-"));
after(() => rmSync(folder, { recursive: true }));

/** A copy of the bundle with some bytes of a file replaced. */
function damaged(name: string, content: (data: Buffer) => Buffer): string {
  const copy = join(folder, `damaged-${readdirSync(folder).length}`);
  cpSync(INT8, copy, { recursive: true });
  writeFileSync(join(copy, name), content(readFileSync(join(copy, name))));
  return copy;
}

/** An entry of the state table. */
interface RawState {
  kind: string;
  axes: unknown[];
}

/** A copy of the bundle with another manifest, whose hash fits. */
function withManifest(change: (manifest: { state: RawState[] }) => object): string {
  const copy = damaged("manifest.json", (data) => Buffer.from(JSON.stringify(change(JSON.parse(String(data))))));
  const hash = createHash("sha256")
    .update(readFileSync(join(copy, "manifest.json")))
    .digest("hex");
  writeFileSync(join(copy, "manifest.json.sha256"), `${hash}  manifest.json\n`);
  return copy;
}

/** A state table whose caches have other axes. */
function withAxes(state: RawState[], axes: unknown[]): object[] {
  return state.map((tensor) => (tensor.kind === "cache" ? { ...tensor, axes } : tensor));
}

/** The files of the bundle, as a folder picker gives them. */
function files(): File[] {
  return readdirSync(INT8).map((name) => new File([readFileSync(join(INT8, name))], name));
}

test("a folder and given files have the same content", async () => {
  const weights = readFileSync(join(INT8, "weights.bin"));
  for (const bundle of [await openBundle(INT8), await openBundle(files())]) {
    assert.deepEqual(Buffer.from(await bundle.read("weights.bin")), weights);
    assert.equal(bundle.size("weights.bin"), weights.length);
  }
});

test("damaged bundles are refused with a sentence", async () => {
  const cases: [string, RegExp][] = [
    [
      damaged("manifest.json", (data) => Buffer.from(String(data).replace("int8", "int4"))),
      /does not match its SHA-256/,
    ],
    [withManifest((manifest) => ({ ...manifest, schema_revision: 3 })), /has schema revision 3, .*`edgeformer export`/],
    [withManifest((manifest) => ({ ...manifest, surplus: 1 })), /`surplus` is unknown/],
    [withManifest((manifest) => ({ ...manifest, max_source_length: 0 })), /`max_source_length` must be a whole number/],
    [withManifest((manifest) => ({ ...manifest, max_target_length: 65_536 })), /plan and manifest differ/],
    [withManifest((manifest) => ({ ...manifest, files: {} })), /`weights.bin` is used but not listed/],
    [
      withManifest((manifest) => ({ ...manifest, state: withAxes(manifest.state, ["R", "S"]) })),
      /may not have axes R, S/,
    ],
    [join(folder, "nowhere"), /has no `manifest.json`/],
  ];
  for (const [path, message] of cases)
    await assert.rejects(openBundle(path), (error) => {
      assert.ok(error instanceof EdgeformerError && error.kind === "bundle");
      assert.match(error.message, message);
      return true;
    });
});

test("files that differ from the manifest are refused", async () => {
  const read = async (path: string) => (await openBundle(path)).read("weights.bin");
  await assert.rejects(
    read(damaged("weights.bin", (data) => data.fill(1, 10, 20))),
    /`weights.bin` does not match its SHA/,
  );
  await assert.rejects(read(damaged("weights.bin", (data) => data.subarray(1))), /`weights.bin` has \d+ bytes instead/);
  await assert.rejects(
    read(damaged("weights.bin", (data) => Buffer.concat([data, data]))),
    /`weights.bin` has more bytes/,
  );
});

test("plans have as many numbers as in Python, whatever the order of their fields", () => {
  const data = readFileSync(join(INT8, "manifest.json"));
  const { plan } = parseManifest(new Uint8Array(data));
  const raw = JSON.parse(String(data));
  raw.plan = Object.fromEntries(Object.entries(raw.plan).reverse());
  const reordered = parseManifest(new TextEncoder().encode(JSON.stringify(raw)));
  assert.deepEqual(planNumbers(reordered.plan!), planNumbers(plan!));
});
