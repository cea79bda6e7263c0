/** The tokenizers of a bundle. */
import type { Manifest } from "../bundle/manifest.js";
import { checked, parsedJson, SchemaProblem } from "../bundle/schema.js";
import { EdgeformerError } from "../errors.js";
import type { FileReader, Tokenizer, Tokenizers } from "./interface.js";
import { LibraryTokenizer } from "./library.js";
import { SentencePieceTokenizer } from "./sentencepiece.js";

/**
 * Opens the tokenizers of a bundle, by `manifest.tokenizers`: files of the `tokenizers` library, or SentencePiece models.
 *
 * @throws EdgeformerError of kind `bundle`: a file is damaged, is of a kind that is not supported, or its vocabulary or
 *   special tokens are not those of the manifest.
 */
export async function openTokenizers(manifest: Manifest, files: FileReader): Promise<Tokenizers> {
  const names = manifest.tokenizers;
  const source = await openTokenizer(manifest, files, names.source);
  const target = names.target === names.source ? source : await openTokenizer(manifest, files, names.target);
  const { special, text } = manifest;
  const ids = (tokenizer: Tokenizer, tokens: readonly string[]) => tokens.map((token) => tokenizer.tokenId(token));
  const own = [...ids(source, [text.pad]), ...ids(target, [text.bos, text.eos, ...text.suppress, ...text.forbid])];
  const wanted = [special.pad, special.bos, special.eos, ...special.suppress, ...special.forbid];
  const fits = own.length === wanted.length && own.every((id, index) => id === wanted[index]);
  if (source.size > manifest.source_vocab_size || target.size > manifest.target_vocab_size || !fits)
    throw new EdgeformerError("bundle", "The bundle's tokenizers are not those of its model. Export the bundle again.");
  return { source, target };
}

async function openTokenizer(manifest: Manifest, files: FileReader, name: string): Promise<Tokenizer> {
  const data = await files.read(name);
  const { text } = manifest;
  const special = new Set([text.pad, text.unk, text.bos, text.eos, ...text.suppress, ...Object.values(text.languages)]);
  try {
    const file = parsedJson(data) as { kind?: unknown } | null;
    const tokenizer =
      file?.kind === undefined
        ? new LibraryTokenizer(checked("LibraryFile", file), special)
        : new SentencePieceTokenizer(checked("SentencePieceFile", file), special, text.unk);
    const missing = [text.pad, text.unk, text.bos, text.eos].filter((token) => tokenizer.tokenId(token) === undefined);
    if (missing.length) throw new SchemaProblem(`its vocabulary lacks ${missing.join(", ")}`);
    return tokenizer;
  } catch (error) {
    if (!(error instanceof SchemaProblem)) throw error;
    throw new EdgeformerError(
      "bundle",
      `Tokenizer file \`${name}\` cannot be used: ${error.message}. Export the bundle again.`,
    );
  }
}
