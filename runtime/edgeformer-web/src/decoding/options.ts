/** How to search for a translation. Options are those of `DecodeOptions` in Python, in camel case. */
import type { Manifest } from "../bundle/manifest.js";
import { checked, checkedField, SchemaProblem } from "../bundle/schema.js";
import { EdgeformerError } from "../errors.js";
import type { DecodeOptions } from "../generated.js";

export type { DecodeOptions } from "../generated.js";

/** A token id, or a token as the target vocabulary writes it. */
export type Token = number | string;
/** Tokens, or text, which the target tokenizer encodes. */
export type TokensOrText = string | readonly Token[];

/** Options of a call that differ from the model's. */
export type OptionChanges = { [Name in keyof DecodeOptions]?: DecodeOptions[Name] | undefined };

/** Options whose tokens are ids. */
export interface IdOptions extends DecodeOptions {
  suppressTokens: readonly number[];
  suppressSequences: readonly (readonly number[])[];
}

/** The defaults of a model. */
export function defaultOptions({ generation }: Manifest): DecodeOptions {
  const own = Object.entries(generation).map(([name, value]) => [camelCase(name), value]);
  return { ...checked("DecodeOptions", {}), ...Object.fromEntries(own) };
}

/**
 * Returns the defaults with some values changed.
 *
 * @throws EdgeformerError of kind `option`: lists every value that is unknown or out of range.
 */
export function changedOptions(defaults: DecodeOptions, changes: OptionChanges): DecodeOptions {
  const given = Object.entries(changes).filter(([, value]) => value !== undefined);
  const unknown = given.filter(([name]) => !Object.hasOwn(defaults, name)).map(([name]) => `\`${name}\``);
  if (unknown.length)
    throw optionError(`Unknown: ${unknown.join(", ")}. Valid options: ${Object.keys(defaults).join(", ")}.`);
  const options: DecodeOptions = { ...defaults, ...Object.fromEntries(given) };
  let problems = given.flatMap(([name, value]) => problemOf(name, value));
  if (!problems.length) problems = [...conflicts(options)];
  if (problems.length) throw optionError(`${problems.join("; ")}.`);
  return options;
}

/** Number of finished hypotheses at which beam search of a sentence ends. */
export function placesOf(options: DecodeOptions): number {
  return Math.max(1, Math.floor(options.beamSize * options.patience + 0.5));
}

export function optionError(message: string): EdgeformerError {
  return new EdgeformerError("option", message);
}

function problemOf(name: string, value: unknown): string[] {
  try {
    checkedField("DecodeOptions", name, value);
    return [];
  } catch (error) {
    if (!(error instanceof SchemaProblem)) throw error;
    return [`${error.message}, but is ${JSON.stringify(value)}`];
  }
}

function camelCase(name: string): string {
  return name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

function* conflicts(options: DecodeOptions): Generator<string> {
  const places = placesOf(options);
  if (!options.returnAlternatives && options.nBest > places)
    yield `\`nBest\` must be at most \`beamSize\` times \`patience\` (${places}), but is ${options.nBest}`;
  if (options.maxLength !== null && options.minLength > options.maxLength)
    yield `\`minLength\` must be at most \`maxLength\` (${options.maxLength}), but is ${options.minLength}`;
  if (options.maxNgramRepeats === 1) yield "`maxNgramRepeats` must be 0 or at least 2, but is 1";
  if (options.beamShrinks && options.patience > 1) yield "`beamShrinks` and a `patience` above 1 cannot be combined";
  if (options.beamShrinks && !options.earlyStopping) yield "`beamShrinks` needs `earlyStopping`";
}
