/**
 * Writes `src/generated.ts`: types of what this package reads, and the constraints that it checks. Both come from
 * `schema.json`, which `python -m tests.web.schema` writes from the types in Python.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { compile } from "json-schema-to-typescript";

const { constants, $defs } = JSON.parse(readFileSync(new URL("schema.json", import.meta.url), "utf8"));

/** A part of the schema in which every record has all of its fields, as it does once defaults are filled in. */
const complete = (record) => {
  const fields = Object.entries(record.properties).map(([name, { $ref, ...field }]) => [name, $ref ? { $ref } : field]);
  return {
    ...record,
    properties: Object.fromEntries(fields),
    required: fields.map(([name]) => name),
    additionalProperties: false,
  };
};
/** A part of the schema without what is only for readers. */
const checked = (key, value) =>
  ["description", "tsType"].includes(key) && typeof value === "string" ? undefined : value;

const names = Object.keys($defs);
const all = {
  description: "Everything by its name.",
  ...complete({ properties: Object.fromEntries(names.map((name) => [name, { $ref: `#/$defs/${name}` }])) }),
  type: "object",
  $defs: Object.fromEntries(names.map((name) => [name, complete($defs[name])])),
};
const types = await compile(all, "Definitions", { bannerComment: "", format: false, maxItems: 4 });
const content = [
  "// Written by `npm run generate`; not to be changed.",
  types,
  ...Object.entries(constants).map(([name, value]) => `export const ${name} = ${JSON.stringify(value)};`),
  `export const SCHEMA: unknown = ${JSON.stringify($defs, checked)};`,
];
writeFileSync(new URL("src/generated.ts", import.meta.url), `${content.join("\n")}\n`);
