/** The manifest of a bundle. Its fields have the names that they have in `manifest.json`. */
import { EdgeformerError } from "../errors.js";
import { type Manifest, SCHEMA_REVISION } from "../generated.js";
import { checked, parsedJson, SchemaProblem } from "./schema.js";

export type { Manifest, SpecialTokens, StateTensor, TextFormat } from "../generated.js";

export const MANIFEST_FILE = "manifest.json";
export const MANIFEST_HASH_FILE = "manifest.json.sha256";
export const WEIGHTS_FILE = "weights.bin";
export const SHORTLIST_FILE = "shortlist.bin";
export const GOLDEN_FILE = "golden.json";
export const ENCODER_FILE = "encoder.onnx";
export const DECODER_FILE = "decoder.onnx";
export const ATTENTION_FILE = "attention.onnx";
export const MAX_MANIFEST_BYTES = 16 * 2 ** 20;

/** Bytes of a file by its name or, last, of any other file: WebAssembly addresses 4 GiB. */
const MAX_BYTES: [RegExp, number][] = [
  [/\.onnx$/, 2 ** 26],
  [/^golden\.json$/, 2 ** 26],
  [/^shortlist\.bin$/, 2 ** 28],
  [/^tokenizer/, 2 ** 25],
  [/(?:)/, 2 ** 32 - 1],
];

/**
 * Parses and checks a manifest.
 *
 * @throws EdgeformerError of kind `bundle`: the data is not a manifest, has another schema revision, or contains
 *   contradictory values.
 */
export function parseManifest(data: Uint8Array): Manifest {
  try {
    const content = parsedJson(data) as { schema_revision?: unknown } | null;
    const revision = content?.schema_revision;
    if (revision !== SCHEMA_REVISION)
      throw damaged(
        `The bundle has schema revision ${String(revision).slice(0, 20)}, but this package reads revision ` +
          `${SCHEMA_REVISION}; run \`edgeformer export\` or \`edgeformer get\` again, or use another version of this package.`,
      );
    const manifest = checked("Manifest", content);
    const problems = [...contradictions(manifest)];
    if (problems.length) throw new SchemaProblem(problems.join("; "));
    return manifest;
  } catch (error) {
    if (!(error instanceof SchemaProblem)) throw error;
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
    else if (!(0 <= size && size <= most)) yield `file \`${name}\` must have at most ${most} bytes, but has ${size}`;
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
