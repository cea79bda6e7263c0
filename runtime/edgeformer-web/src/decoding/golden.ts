/** Golden examples: inputs with the output recorded at export, run again here. */
import type { Bundle } from "../bundle/bundle.js";
import { GOLDEN_FILE } from "../bundle/manifest.js";
import { parsed, SchemaProblem } from "../bundle/schema.js";
import type { Hypothesis } from "../engine/interface.js";
import { EdgeformerError } from "../errors.js";
import type { Golden, GoldenCase } from "../generated.js";
import type { Tokenizer } from "../tokenizer/interface.js";
import type { CallOptions, GoldenResult } from "./translation.js";

/** Largest difference of a score by precision: machines add in another order; after other precisions, 0.05. */
const TOLERANCES: Readonly<Record<string, number>> = { fp32: 1e-4, fp16: 2e-2 };
const TOLERANCE_OF_INTEGERS = 5e-2;

/** What runs the examples. */
interface ExampleRunner {
  /** Whether searches can be restricted to the tokens of a shortlist. */
  readonly hasShortlist: boolean;
  /** Source token ids of a text, as the model reads them. */
  encode(text: string): number[];
  decode(sources: readonly (readonly number[])[], options: CallOptions): Promise<Hypothesis[][]>;
}

/**
 * Runs the golden examples, from their recorded ids so that a wrong tokenizer cannot mask a wrong model.
 *
 * @throws EdgeformerError of kind `bundle`: the golden file cannot be parsed, or is damaged.
 */
export async function checkGolden(bundle: Bundle, decoding: ExampleRunner, target: Tokenizer): Promise<GoldenResult> {
  const { cases, listed: all } = await readGolden(bundle);
  const listed = decoding.hasShortlist ? all : [];
  const precisions = Object.values(bundle.manifest.precision);
  const tolerance = Math.max(...precisions.map((name) => TOLERANCES[name] ?? TOLERANCE_OF_INTEGERS));
  const result: GoldenResult = { cases: cases.length + listed.length, maxScoreDifference: 0, problems: [] };
  result.problems.push(...tokenizerProblems(cases, decoding, target));
  for (const [index, example] of [...cases, ...listed].entries()) {
    const options = { beamSize: example.beam_size, shortlist: index >= cases.length };
    const [[best] = []] = await decoding.decode([example.source], options);
    const difference = Math.abs(best!.score - example.score);
    const position = firstDifference(best!.ids, example.ids);
    const where = `example ${index + 1} (beam ${example.beam_size})`;
    if (position !== undefined)
      result.problems.push(
        `${where}, token ${position + 1} differs: ${JSON.stringify(example.text)} gave ` +
          `${JSON.stringify(target.decode(best!.ids))} instead of ${JSON.stringify(example.output)}`,
      );
    else if (!(difference <= tolerance))
      result.problems.push(`${where} has score ${best!.score} instead of ${example.score}`);
    else result.maxScoreDifference = Math.max(result.maxScoreDifference, difference);
  }
  return result;
}

async function readGolden(bundle: Bundle): Promise<Golden> {
  const data = await bundle.read(GOLDEN_FILE);
  try {
    return parsed("Golden", data);
  } catch (error) {
    if (!(error instanceof SchemaProblem)) throw error;
    throw new EdgeformerError(
      "bundle",
      `\`${GOLDEN_FILE}\` cannot be parsed (${error.message}); export the bundle again.`,
    );
  }
}

/** Says the first text that each tokenizer encodes or decodes differently from the record. */
function tokenizerProblems(cases: readonly GoldenCase[], decoding: ExampleRunner, target: Tokenizer): string[] {
  const problems: string[] = [];
  const encoded = cases.findIndex(({ text, source }) => firstDifference(decoding.encode(text), source) !== undefined);
  if (encoded >= 0) problems.push(`the source tokenizer gives other tokens for the text of example ${encoded + 1}`);
  const decoded = cases.findIndex(({ ids, output }) => target.decode(ids) !== output);
  if (decoded >= 0) problems.push(`the target tokenizer gives another text for the tokens of example ${decoded + 1}`);
  return problems;
}

/** Position of the first token that differs; undefined if all are equal. */
function firstDifference(left: readonly number[], right: readonly number[]): number | undefined {
  const position = left.findIndex((id, i) => id !== right[i]);
  if (position >= 0) return position;
  return left.length === right.length ? undefined : left.length;
}
