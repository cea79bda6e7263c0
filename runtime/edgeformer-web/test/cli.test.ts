import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { openTranslator } from "edgeformer";
import { INT8, SENTENCES } from "./support.js";

const CLI = fileURLToPath(new URL("../../dist/cli.js", import.meta.url));

/** Runs the command. */
function run(args: string[], input = ""): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(process.execPath, [CLI, ...args], { input, encoding: "utf8" });
}

test("lines are translated as by the package", async () => {
  const texts = SENTENCES.slice(0, 3);
  const translator = await openTranslator(INT8);
  const expected = (await translator.translate(texts, { beamSize: 2 })).map(({ text }) => `${text}\n`).join("");
  assert.equal(run(["translate", INT8, "--beam", "2"], `${texts.join("\n")}\n`).stdout, expected);
  assert.equal(run(["translate", INT8, "--beam", "2", ...texts]).stdout, expected);
  const { source, hypotheses } = JSON.parse(run(["translate", INT8, "--json", texts[0]!]).stdout);
  assert.equal(source, texts[0]);
  assert.ok(hypotheses[0].confidence > 0);
});

test("only \\n and \\r\\n end a line, wherever what is read is divided", async () => {
  const ends = ["\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r\r"];
  const lines = ends.flatMap((end) => [`a 😀${end}cat!`, `${end}dog`, ""]);
  const input = Buffer.from(lines.map((line, index) => line + (index % 2 ? "\r\n" : "\n")).join(""));
  for (const size of [1, 2, 3, 7, input.length]) {
    const child = spawn(process.execPath, [CLI, "translate", INT8, "--json"], { stdio: ["pipe", "pipe", "inherit"] });
    const found: Buffer[] = [];
    child.stdout.on("data", (data: Buffer) => found.push(data));
    for (let start = 0; start < input.length; start += size) child.stdin.write(input.subarray(start, start + size));
    child.stdin.end();
    await once(child, "close");
    const sources = Buffer.concat(found).toString().split("\n").slice(0, -1);
    assert.deepEqual(
      sources.map((line) => JSON.parse(line).source),
      lines,
    );
  }
});

test("a line is translated before the next one is read", async () => {
  const child = spawn(process.execPath, [CLI, "translate", INT8, "--json"], { stdio: ["pipe", "pipe", "inherit"] });
  for (const text of SENTENCES.slice(0, 3)) {
    child.stdin.write(`${text}\n`);
    const [data] = (await once(child.stdout, "data", { signal: AbortSignal.timeout(30_000) })) as [Buffer];
    assert.equal(JSON.parse(String(data)).source, text);
  }
  child.stdin.end("A cat!");
  const [data] = (await once(child.stdout, "data")) as [Buffer];
  assert.equal(JSON.parse(String(data)).source, "A cat!");
});

test("golden examples are verified", () => {
  const { status, stdout } = run(["verify", INT8]);
  assert.equal(status, 0);
  assert.match(stdout, /^12 examples: the same output/);
});

test("mistakes end in one sentence", () => {
  for (const [args, expected, message] of [
    [[], 2, /Give a command/],
    [["fly", INT8], 2, /There is no command `fly`/],
    [["translate"], 2, /Give a bundle/],
    [["translate", INT8, "--beam", "many", "A cat!"], 2, /`--beam` must be a whole number/],
    [["translate", INT8, "--beam", "0", "A cat!"], 2, /`beamSize` must be from 1/],
    [["translate", "/nowhere", "A cat!"], 1, /has no `manifest.json`/],
    [["translate", "http://", "A cat!"], 1, /`http:\/\/` is not an address/],
    [["translate", INT8, "--wings"], 2, /--wings/],
    [["translate", INT8, "--beam"], 2, /--beam/],
    [["translate", INT8, "--json=yes"], 2, /--json/],
  ] as const) {
    const { status, stdout, stderr } = run([...args]);
    assert.equal(status, expected);
    assert.match(stderr, message);
    assert.match(stderr, /^Error: .*\.\n$/);
    assert.doesNotMatch(stderr, /[^.] See `edgeformer/);
    assert.equal(stdout, "");
  }
  assert.match(run(["--help"]).stdout, /Examples:/);
});
