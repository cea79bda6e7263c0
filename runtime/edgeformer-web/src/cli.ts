#!/usr/bin/env node
/** The command `edgeformer` of the package. */
import { realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import type { Translation, Translator } from "./decoding/translation.js";
import { openTranslator } from "./decoding/translator.js";
import { EdgeformerError } from "./errors.js";

const HELP = `Usage: edgeformer translate BUNDLE [TEXT...]
       edgeformer verify BUNDLE

Translates texts, or the lines of standard input, with a bundle: a folder, a .zip, or an http address.

Options:
  --beam NUMBER      hypotheses kept per sentence; 1 is greedy search
  --nbest NUMBER     translations per sentence, best first
  --from, --to CODE  languages, for models with several
  --prefix TEXT      what translations begin with
  --json             print one JSON object per sentence, with tokens and scores
  --help             show this text

Examples:
  edgeformer translate models/en-fr "Hello, world."
  edgeformer translate models/en-fr --beam 4 --json < lines.txt
  edgeformer verify https://example.org/models/en-fr/
`;
/** Lines that are translated together. */
const CHUNK = 64;

const OPTIONS = {
  beam: { type: "string" },
  nbest: { type: "string" },
  from: { type: "string" },
  to: { type: "string" },
  prefix: { type: "string" },
  json: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
} as const;

type Values = ReturnType<typeof parseArgs<{ options: typeof OPTIONS; allowPositionals: true }>>["values"];

/**
 * Runs the command.
 *
 * @returns the exit status: 0, 1 if something cannot be done, 2 for a wrong command line.
 */
async function main(given: readonly string[]): Promise<number> {
  let parsed: ReturnType<typeof parseArgs<{ options: typeof OPTIONS; allowPositionals: true }>>;
  try {
    parsed = parseArgs({ args: [...given], options: OPTIONS, allowPositionals: true });
  } catch (error) {
    const [problem] = (error as Error).message.split(". "); // what follows is Node's advice
    return usage(`${problem}.`);
  }
  const [command, bundle, ...texts] = parsed.positionals;
  if (parsed.values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  if (command !== "translate" && command !== "verify")
    return usage(command === undefined ? "Give a command." : `There is no command \`${command}\`.`);
  if (bundle === undefined) return usage("Give a bundle.");
  try {
    const translator = await openTranslator(bundle);
    if (command === "verify") return await verify(translator);
    await translate(translator, texts.length ? [texts] : lines(), parsed.values);
    return 0;
  } catch (error) {
    if (!(error instanceof EdgeformerError)) throw error;
    process.stderr.write(`Error: ${error.message}\n`);
    return error.kind === "option" ? 2 : 1;
  }
}

async function translate(
  translator: Translator,
  blocks: Iterable<string[]> | AsyncIterable<string[]>,
  values: Values,
): Promise<void> {
  const options = {
    beamSize: numberOf(values.beam, "beam"),
    nBest: numberOf(values.nbest, "nbest"),
    sourceLanguage: values.from,
    targetLanguage: values.to,
    targetPrefix: values.prefix,
    returnTokenScores: values.json,
  };
  for await (const texts of blocks)
    for (let start = 0; start < texts.length; start += CHUNK)
      for (const found of await translator.translate(texts.slice(start, start + CHUNK), options))
        print(found, values.json ?? false);
}

function print({ source, hypotheses }: Translation, asJson: boolean): void {
  const shown = asJson ? [JSON.stringify({ source: source.text, hypotheses })] : hypotheses.map(({ text }) => text);
  process.stdout.write(`${shown.join("\n")}\n`);
}

async function verify(translator: Translator): Promise<number> {
  const { cases, maxScoreDifference, problems } = await translator.verify();
  for (const problem of problems) process.stderr.write(`${problem}\n`);
  const outcome = problems.length ? `${problems.length} problems` : "the same output as where it was exported";
  process.stdout.write(`${cases} examples: ${outcome}; scores differ by ${maxScoreDifference.toExponential(1)}\n`);
  return problems.length ? 1 : 0;
}

function numberOf(value: string | undefined, name: string): number | undefined {
  if (value === undefined) return undefined;
  if (/^\d+$/.test(value)) return Number(value);
  throw new EdgeformerError("option", `\`--${name}\` must be a whole number, but is \`${value}\`.`);
}

/** The lines of standard input, in blocks of those that are there; `\n` and `\r\n` end a line, as in Python. */
async function* lines(): AsyncGenerator<string[]> {
  let rest = "";
  for await (const part of process.stdin.setEncoding("utf8")) {
    const found = (part as string).split("\n");
    found[0] = rest + found[0]!;
    rest = found.pop()!;
    yield found.map((line) => line.replace(/\r$/, ""));
  }
  if (rest) yield [rest.replace(/\r$/, "")];
}

function usage(problem: string): number {
  process.stderr.write(`Error: ${problem} See \`edgeformer --help\`.\n`);
  return 2;
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));
  process.exitCode = await main(process.argv.slice(2));
}
