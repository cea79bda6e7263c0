import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const SOURCE = fileURLToPath(new URL("../../src", import.meta.url));

/** The arguments of every call of functions in the source, as they are written, and where they are. */
function calls(names: string): { place: string; given: string }[] {
  const paths = readdirSync(SOURCE, { recursive: true }).map(String);
  return paths
    .filter((path) => path.endsWith(".ts"))
    .flatMap((path) => {
      const code = readFileSync(join(SOURCE, path), "utf8");
      return [...code.matchAll(new RegExp(`(?<!function |#)\\b(?:${names})\\(`, "g"))].map((match) => {
        const start = match.index + match[0].length;
        const given = code.slice(start, closing(code, start)).replace(/,?\s*$/, "");
        return { place: `${path}: ${given}`, given };
      });
    });
}

/** Where the parenthesis closes that was opened before an offset; parentheses in messages are in pairs. */
function closing(code: string, start: number): number {
  let depth = 1;
  let offset = start;
  for (; depth; offset++) depth += code[offset] === "(" ? 1 : code[offset] === ")" ? -1 : 0;
  return offset - 1;
}

test("errors are full sentences", () => {
  const found = calls("new EdgeformerError|optionError|usage|damaged");
  assert.ok(found.length > 20);
  for (const { place, given } of found)
    if (!/\b(?:message|hint)(?:\}`)?$|^$/.test(given)) assert.match(given, /\.["`]$/, place);
});

test("problems that other sentences name have no full stop", () => {
  const found = calls("new SchemaProblem|wrong");
  assert.ok(found.length > 20);
  for (const { place, given } of found) assert.doesNotMatch(given, /\.["`]$/, place);
});
