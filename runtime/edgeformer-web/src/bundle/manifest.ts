/** The manifest of a bundle. Its fields have the names that they have in `manifest.json`. */
import { EdgeformerError } from "../errors.js";
import { plan } from "./plan.js";
import * as schema from "./schema.js";

export const MANIFEST_FILE = "manifest.json";
export const MANIFEST_HASH_FILE = "manifest.json.sha256";
export const WEIGHTS_FILE = "weights.bin";
export const SHORTLIST_FILE = "shortlist.bin";
export const GOLDEN_FILE = "golden.json";
export const ENCODER_FILE = "encoder.onnx";
export const DECODER_FILE = "decoder.onnx";
export const ATTENTION_FILE = "attention.onnx";
export const MAX_MANIFEST_BYTES = 16 * 2 ** 20;
export const MAX_BEAM_SIZE = 1024;

const SCHEMA_REVISION = 4;
const MAX_VOCAB_SIZE = 2 ** 24;
const MAX_LENGTH = 2 ** 16;
/** Bytes of a file by its name or, last, of any other file: WebAssembly addresses 4 GiB. */
const MAX_BYTES: [RegExp, number][] = [
  [/\.onnx$/, 2 ** 26],
  [/^golden\.json$/, 2 ** 26],
  [/^shortlist\.bin$/, 2 ** 28],
  [/^tokenizer/, 2 ** 25],
  [/(?:)/, 2 ** 32 - 1],
];

const { flag, list, named, oneOf, optional, orNull, real, record, whole } = schema;
const count = whole();
const text = schema.text();
const tokens = (...fallback: string[]) => optional(list(text, 64), fallback);

const special = record({
  pad: optional(count, 0),
  unk: optional(orNull(count), 1),
  bos: optional(count, 2),
  eos: optional(count, 3),
  suppress: optional(list(count, MAX_VOCAB_SIZE), [0, 2]),
  forbid: optional(list(count, MAX_VOCAB_SIZE), []),
  prefix: optional(list(count, MAX_LENGTH), []),
});

const generation = record({
  beam_size: optional(whole(1, MAX_BEAM_SIZE), 4),
  length_penalty: optional(real(-10, 10), 1),
  length_includes_end: optional(flag, true),
  max_len_a: optional(real(), 0),
  beam_shrinks: optional(flag, false),
  early_stopping: optional(flag, true),
});

const format = record({
  pad: optional(text, "<pad>"),
  unk: optional(text, "<unk>"),
  bos: optional(text, "<s>"),
  eos: optional(text, "</s>"),
  suppress: tokens("<pad>", "<s>"),
  forbid: tokens(),
  source_prefix: tokens(),
  source_suffix: tokens("</s>"),
  target_prefix: tokens(),
  languages: optional(named(text, 10_000), {}),
});

const stateTensor = record({
  name: text,
  kind: oneOf("constant", "cache", "recurrent"),
  dtype: oneOf("float32", "float16", "int32", "int64", "bool"),
  axes: list((value, path) => (typeof value === "string" ? text : whole(1, 2 ** 20))(value, path), 16, 1),
});

const manifest = record({
  schema_revision: count,
  producer: text,
  family: text,
  source_language: text,
  target_language: text,
  target: oneOf("ort", "portable"),
  precision: named(text, 64),
  parameters: whole(0),
  source_vocab_size: whole(1, MAX_VOCAB_SIZE),
  target_vocab_size: whole(1, MAX_VOCAB_SIZE),
  max_source_length: whole(1, MAX_LENGTH),
  max_target_length: whole(1, MAX_LENGTH),
  special,
  tokenizers: record({
    source: text,
    target: text,
    source_vocabulary: optional(text, ""),
    target_vocabulary: optional(text, ""),
  }),
  state: list(stateTensor, 10_000),
  generation,
  text: (value, path) => format(value ?? {}, path),
  plan: optional(orNull(plan), null),
  traits: (value, path) => traits(value ?? {}, path),
  opsets: named(whole(1, 1000), 16),
  files: named(record({ size: whole(0), sha256: text }), 64),
  provenance: schema.anything,
  report: schema.anything,
});

const traits = record({
  min_confidence: optional(orNull(real(0, 1)), null),
  needs_period: optional(flag, false),
});

export type Manifest = schema.Checked<typeof manifest>;
export type TextFormat = Manifest["text"];
export type SpecialTokens = Manifest["special"];
export type StateTensor = Manifest["state"][number];

/**
 * Parses and checks a manifest.
 *
 * @throws EdgeformerError of kind `bundle`: the data is not a manifest, has another schema revision, or contains
 *   contradictory values.
 */
export function parseManifest(data: Uint8Array): Manifest {
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data));
  } catch {
    throw damaged("The bundle's manifest is not valid JSON; copy or export the bundle again.");
  }
  const revision = (parsed as { schema_revision?: unknown } | null)?.schema_revision;
  if (revision !== SCHEMA_REVISION)
    throw damaged(
      `The bundle has schema revision ${String(revision).slice(0, 20)}, but this package reads revision ` +
        `${SCHEMA_REVISION}; export the model again, or use another version of this package.`,
    );
  try {
    const checked = manifest(parsed, "");
    const problems = [...contradictions(checked)];
    if (problems.length) throw new schema.SchemaProblem(problems.join("; "));
    return checked;
  } catch (error) {
    if (!(error instanceof schema.SchemaProblem)) throw error;
    throw damaged(`The bundle's manifest does not follow its schema: ${error.message}. Export the bundle again.`);
  }
}

function* contradictions(manifest: Manifest): Generator<string> {
  const { special, source_vocab_size, target_vocab_size, files, tokenizers } = manifest;
  const outside = (id: number | null, size: number) => id !== null && !(0 <= id && id < size);
  const { suppress, forbid, prefix, bos, eos, unk } = special;
  if (outside(special.pad, source_vocab_size)) yield "special token `pad` is outside the vocabulary";
  if ([bos, eos, unk, ...suppress, ...forbid, ...prefix].some((id) => outside(id, target_vocab_size)))
    yield "a special token is outside the vocabulary";
  if ([...suppress, ...forbid].includes(eos)) yield "`suppress` and `forbid` must not have the end token";
  if (prefix.length >= manifest.max_target_length) yield "`prefix` must have fewer tokens than a target may have";
  for (const [name, { size }] of Object.entries(files)) {
    const [, most] = MAX_BYTES.find(([pattern]) => pattern.test(name)) ?? [0, 0];
    if (!name || name === "." || name === ".." || /[/\\:]/.test(name))
      yield `file \`${name}\` must be a plain name inside the bundle`;
    else if (size > most) yield `file \`${name}\` must have at most ${most} bytes, but has ${size}`;
  }
  const used = [WEIGHTS_FILE, tokenizers.source, tokenizers.target];
  for (const name of new Set([ENCODER_FILE, DECODER_FILE, ...used]))
    if (!Object.hasOwn(files, name)) yield `file \`${name}\` is used but not listed with a hash`;
  const sides = manifest.plan ? [manifest.plan.source, manifest.plan.target] : [];
  const sizes = [source_vocab_size, target_vocab_size];
  const longest = [manifest.max_source_length, manifest.max_target_length];
  if (sides.some((side, i) => side.rows !== sizes[i] || side.positions < longest[i]!))
    yield "plan and manifest differ in vocabularies or lengths";
  if (new Set(manifest.state.map(({ name }) => name)).size < manifest.state.length) yield "a state is listed twice";
  for (const { name, kind, axes } of manifest.state) {
    const [first, ...rest] = axes;
    const letters = rest.filter((axis) => typeof axis === "string").join();
    const isRow = first === "R" || (first === "N" && kind === "constant");
    if (!isRow || !(kind === "cache" ? /^[PT]$/ : /^(S(,S)*)?$/).test(letters))
      yield `state \`${name}\` (${kind}) may not have axes ${axes.join(", ")}`;
  }
}

function damaged(message: string): EdgeformerError {
  return new EdgeformerError("bundle", message);
}
