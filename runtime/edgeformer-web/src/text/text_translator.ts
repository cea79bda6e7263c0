/**
 * Translation of whole texts: a text is split into sentences, which are translated one by one. White space, line breaks
 * and list markers between them stay as they are, and so do sentences without words, such as numbers and URLs.
 *
 * It follows the rules of the Python package's `text`, and gives the same results where both have them. It does not have:
 * glossaries, details of words, doubtful sentences, alternatives, formats of documents, elements
 * that keep their source where the model leaves all words out, and HTML as a string: see `page.ts` for documents.
 */

import type { Manifest } from "../bundle/manifest.js";
import type { CallOptions } from "../decoding/translation.js";
import type { LocalTranslator } from "../decoding/translator.js";
import type { Tokenizers } from "../tokenizer/interface.js";
import {
  type AlignedSentence,
  type AttentionRows,
  aligned,
  copied,
  restored,
  type SentenceTranslation,
} from "./alignment.js";
import {
  type Block,
  type Item,
  overlapping,
  type Piece,
  type Reading,
  read,
  type Span,
  withoutItems,
  written,
} from "./block.js";
import {
  corrected,
  differences,
  type Languages,
  type NumberDifferences,
  numberItems,
  targetWithout,
} from "./numbers.js";
import { isBlank } from "./patterns.js";
import { innerTags, withTags } from "./placement.js";
import { hasWords, joinedItems, protectedItems } from "./protected.js";
import { fittingSpans, joinedSpans, sentenceSpans } from "./segmentation.js";
import {
  applied,
  inCapitals,
  lacksPeriod,
  lowered,
  period,
  repaired,
  type SurfaceChange,
  surfaceChange,
} from "./surface.js";

/** How a text is split into sentences and put together again. */
export interface TextOptions {
  /** Split sentences with more tokens than this. By default, what the model reads, or three quarters of what it writes
   * if that is less. */
  maxSentenceTokens?: number;
  /** `lower`: the model reads text in capitals in lowercase, and its translation gets capitals. `keep`: it reads
   * capitals. `auto`, the default: lowercase if capitals take at least a tenth more tokens. */
  capitals?: "auto" | "lower" | "keep";
  /** Give a translation the final punctuation and the first letter of its source. */
  matchSurface?: boolean;
  /** Give the model a period after a sentence without final punctuation if it needs one, as its bundle says. */
  addPeriod?: boolean;
  /** Shorten a translation that ends with the same words this often in a row; 0 shortens none. */
  maxRepeats?: number;
  /** Compare the digits of each translation with those of its source, and correct it. */
  checkNumbers?: boolean;
  /** Keep placeholders, URLs, e-mail addresses, mentions and hashtags as they are. */
  protect?: boolean;
}

/** What translates sentences. */
export interface SentenceTranslator {
  readonly manifest: Pick<
    Manifest,
    "source_language" | "target_language" | "max_source_length" | "max_target_length" | "traits" | "text"
  >;
  readonly tokenizers: Tokenizers;
  /** Translates sentences; the best translation of each. */
  sentences(texts: readonly string[], options: CallOptions): Promise<SentenceTranslation[]>;
  /** Computes what the tokens of a translation attend to. */
  attention(text: string, translation: SentenceTranslation, options: CallOptions): Promise<AttentionRows>;
}

/** The translation of a block. */
export interface BlockTranslation {
  pieces: Piece[];
  /** Its sentences, in characters of the block, and what the model wrote; undefined for those that were copied. */
  sentences: { span: Span; translation: SentenceTranslation | undefined }[];
}

interface PlannedSentence {
  block: Block;
  span: Span;
  items: Item[];
  tags: Set<number>;
  reading: Reading;
  /** What the model reads if it does not copy the placeholders: the sentence without them. */
  bare: Reading | undefined;
}

/** The translation of a sentence, and what is made of it. */
interface JoinedSentence {
  options: CallOptions;
  planned: PlannedSentence;
  reading: Reading;
  translation: SentenceTranslation;
  change: SurfaceChange;
  /** Its words, if something is placed among them. */
  sentence?: AlignedSentence;
}

/** Text in capitals is unusual to a tokenizer that needs this many times the tokens for it. */
const MANY_TOKENS = 1.1;
/** How translations are stopped that loop or are far too long. */
const STOPPED: CallOptions = { maxNgramRepeats: 8, maxLenA: 3, maxLenB: 32 };

/** Translates whole texts with a model that is open in this thread. */
export function textTranslator(translator: LocalTranslator, options: TextOptions = {}): TextTranslator {
  const { manifest, tokenizers } = translator;
  const sentences: SentenceTranslator["sentences"] = async (texts, changes) => {
    const translations = await translator.translate(texts, changes);
    return translations.map(({ hypotheses: [best] }) => ({ text: best!.text, ids: best!.ids }));
  };
  const attention: SentenceTranslator["attention"] = async (text, { ids }, changes) => {
    if (!translator.hasAttention || !ids.length) return null;
    const weights = await translator.attention(text, ids, changes);
    return weights.map((row) => [...row]);
  };
  return new TextTranslator({ manifest, tokenizers, sentences, attention }, options);
}

/** Translates whole texts. */
export class TextTranslator {
  private readonly limit: number;
  private readonly period: string;

  constructor(
    private readonly translator: SentenceTranslator,
    private readonly options: TextOptions = {},
  ) {
    const { manifest } = translator;
    const most = Math.min(manifest.max_source_length, Math.max(2, Math.floor((manifest.max_target_length * 3) / 4)));
    this.limit = Math.min(manifest.max_source_length, options.maxSentenceTokens ?? most);
    this.period = options.addPeriod !== false && manifest.traits.needs_period ? period(manifest.source_language) : "";
  }

  /** Translates blocks of a document. */
  async translateBlocks(blocks: readonly Block[], options: CallOptions = {}): Promise<BlockTranslation[]> {
    const plans = blocks.map((block) => this.plan(block));
    const planned = plans.flat().filter((part): part is PlannedSentence => "reading" in part);
    const outcomes = await this.outcomes(planned, { ...STOPPED, ...options });
    const found = new Map(planned.map((sentence, index) => [sentence, outcomes[index]!]));
    return plans.map((plan, index) => this.joined(blocks[index]!, plan, found));
  }

  /** Splits a block into sentences to translate, and spans that are copied. */
  private plan(block: Block): (PlannedSentence | { span: Span })[] {
    const { protect = true } = this.options;
    const text = block.isMarkup ? block.text.replace(/\s/g, " ") : block.text; // no line ends
    const own = protect ? [...block.items, ...protectedItems(block)] : [...block.items];
    const items = joinedItems(
      block,
      own.sort((one, other) => one.start - other.start),
    );
    const spans = joinedSpans(sentenceSpans(text, this.translator.manifest.source_language), items);
    const worded = spans.filter((span) => hasWords(block.text, span, items));
    const kept = spans.filter((span) => !worded.includes(span));
    const fitting = fittingSpans(block.text, worded, items, this.limit, (part) => this.count(part));
    return [...kept, ...fitting]
      .sort((one, other) => one[0] - other[0])
      .map(([start, end]) => {
        const inner = overlapping(items, start, end);
        const span = [Math.min(start, inner[0]?.start ?? start), Math.max(end, inner.at(-1)?.end ?? end)] as const;
        return hasWords(block.text, span, items) ? this.sentence(block, span, inner) : { span };
      });
  }

  private sentence(block: Block, span: Span, items: Item[]): PlannedSentence {
    const text = withoutItems(block.text, span, items);
    const whole = block.text.slice(...span);
    const isUpper = this.isLowercased(text);
    const needsPeriod = this.period && lacksPeriod(whole) && items.at(-1)?.end !== span[1];
    const addedPeriod = needsPeriod && this.count(whole + this.period) <= this.limit ? this.period : "";
    const reading = read(block, span, items, isUpper, [], addedPeriod);
    const bare = items.length ? read(block, span, items, isUpper, items, addedPeriod) : undefined;
    return { block, span, items, tags: innerTags(block, span), reading, bare };
  }

  /** Whether the model reads a text in lowercase. */
  private isLowercased(text: string): boolean {
    const { capitals = "auto" } = this.options;
    if (capitals === "keep" || !inCapitals(text)) return false;
    const most = capitals === "auto" ? this.count(text) / MANY_TOKENS : Number.POSITIVE_INFINITY;
    return this.count(lowered(text)) <= Math.min(this.limit, most);
  }

  /** Tokens of a text, those included that the model expects around it. */
  private count(text: string): number {
    const { source_prefix, source_suffix } = this.translator.manifest.text;
    return this.translator.tokenizers.source.encode(text).length + source_prefix.length + source_suffix.length;
  }

  /** Translates sentences; those whose placeholders the model did not copy again, without them. */
  private async outcomes(planned: readonly PlannedSentence[], options: CallOptions): Promise<JoinedSentence[]> {
    const translate = (readings: readonly Reading[]) =>
      readings.length
        ? this.translator.sentences(
            readings.map(({ text }) => text),
            options,
          )
        : Promise.resolve([]);
    const readings = planned.map(({ reading }) => reading);
    const translations = await translate(readings);
    const bare = planned.flatMap(({ bare, items }, index) =>
      bare && !copied(items, translations[index]!.text) ? { bare, index } : [],
    );
    const again = await translate(bare.map(({ bare }) => bare));
    bare.forEach(({ bare, index }, at) => {
      readings[index] = bare;
      translations[index] = again[at]!;
    });
    const outcomes: JoinedSentence[] = [];
    for (const [index, sentence] of planned.entries()) {
      const outcome = this.applied(sentence, readings[index]!, translations[index]!, options);
      outcomes.push(sentence.items.length || sentence.tags.size ? await this.aligned(outcome) : outcome);
    }
    return this.options.checkNumbers === false ? outcomes : this.withNumbers(outcomes, translate);
  }

  private applied(
    planned: PlannedSentence,
    reading: Reading,
    translation: SentenceTranslation,
    options: CallOptions,
  ): JoinedSentence {
    const text = repaired(reading.text, translation.text);
    const source = reading.addedPeriod ? reading.text.slice(0, -reading.addedPeriod.length) : reading.text;
    const { matchSurface: matches = true, maxRepeats: repeats = 4 } = this.options;
    const rules = { isUpper: reading.isUpper, matches, repeats, hasAddedPeriod: reading.addedPeriod !== "" };
    return {
      options,
      planned,
      reading,
      translation: { ...translation, text },
      change: surfaceChange(source, text, this.languages[1], rules),
    };
  }

  /** An outcome with its words, and items among them. */
  private async aligned(outcome: JoinedSentence, numbers: readonly Item[] = []): Promise<JoinedSentence> {
    if (outcome.sentence) return outcome;
    const { options, planned, reading, translation, change } = outcome;
    const items = [...planned.items, ...numbers].sort((one, other) => one.start - other.start);
    const attention = await this.translator.attention(reading.text, translation, options);
    const words = aligned(reading, translation, attention, this.translator.tokenizers, change);
    return { ...outcome, sentence: restored(words, items, planned.block.text, planned.span[0], reading.without) };
  }

  /**
   * Outcomes with the numbers of their sources. A number that the model changed is put in place of what it became. Where
   * that is not certain, the sentence is translated again without its wrong numbers, which are put into it as
   * placeholders are.
   */
  private async withNumbers(
    outcomes: readonly JoinedSentence[],
    translate: (readings: readonly Reading[]) => Promise<SentenceTranslation[]>,
  ): Promise<JoinedSentence[]> {
    const chosen: JoinedSentence[] = [];
    for (const outcome of outcomes) chosen.push(await this.corrected(outcome));
    const left = [...chosen.keys()].filter((index) => this.wrong(chosen[index]!).count);
    const numbers = left.map((index) => this.numberItems(chosen[index]!, this.wrong(chosen[index]!), true));
    const readings = left.map((index, at) => {
      const { planned, reading } = chosen[index]!;
      const without = [...reading.without, ...numbers[at]!].sort((one, other) => one.start - other.start);
      return read(planned.block, planned.span, planned.items, reading.isUpper, without, planned.reading.addedPeriod);
    });
    const translations = await translate(readings);
    for (const [at, index] of left.entries()) {
      const { options, planned } = chosen[index]!;
      const again = this.applied(planned, readings[at]!, translations[at]!, options);
      const retried = await this.aligned(again, numbers[at]);
      chosen[index] = this.fewerWrong(chosen[index]!, retried);
    }
    return chosen;
  }

  /** An outcome with the right numbers in place of wrong ones, as far as that is certain. */
  private async corrected(outcome: JoinedSentence): Promise<JoinedSentence> {
    const wrong = this.wrong(outcome);
    if (!wrong.count) return outcome;
    const own = await this.aligned(outcome);
    const items = this.numberItems(own, wrong, false);
    const sentence = corrected(own.sentence!, items, wrong, own.planned.items, this.languages[1]);
    return sentence ? this.fewerWrong(outcome, { ...own, sentence }) : outcome;
  }

  private numberItems(
    { planned: { block, span, items } }: JoinedSentence,
    wrong: NumberDifferences,
    withSign: boolean,
  ): Item[] {
    return numberItems(block, span, items, wrong, this.languages, withSign);
  }

  /** What is wrong about the numbers of an outcome. */
  private wrong({ planned: { block, span, items }, sentence, change, translation }: JoinedSentence): NumberDifferences {
    const target = sentence ? targetWithout(sentence, items) : applied(change, translation.text);
    return differences(withoutItems(block.text, span, items), target, this.languages);
  }

  private fewerWrong(old: JoinedSentence, changed: JoinedSentence): JoinedSentence {
    return this.wrong(changed).count < this.wrong(old).count ? changed : old;
  }

  private get languages(): Languages {
    return [this.translator.manifest.source_language, this.translator.manifest.target_language];
  }

  /** Writes a block: what is between sentences is copied. */
  private joined(
    block: Block,
    plan: readonly (PlannedSentence | { span: Span })[],
    found: ReadonlyMap<PlannedSentence, JoinedSentence>,
  ): BlockTranslation {
    const pieces: Piece[] = [];
    const sentences: BlockTranslation["sentences"] = [];
    let [offset, tag] = [0, 0]; // the first character and the first tag that are not written yet
    const copy = (start: number, end: number, last: number) => {
      let from = start;
      for (; tag < last; tag++) {
        const { offset: until, raw } = block.tags[tag]!;
        pieces.push(...written(block, from, until), raw);
        from = Math.max(from, until);
      }
      pieces.push(...written(block, from, end));
    };
    const firstTag = (isWanted: (index: number) => boolean) => {
      let index = tag;
      while (index < block.tags.length && !isWanted(index)) index++;
      return index;
    };
    for (const part of plan) {
      const { span } = part;
      const outcome = "reading" in part ? found.get(part) : undefined;
      const tags = "reading" in part ? part.tags : new Set<number>();
      // Copy what is before the sentence, with the tags up to its first one.
      copy(
        offset,
        span[0],
        firstTag((index) => block.tags[index]!.offset > span[0] || tags.has(index)),
      );
      offset = span[1];
      if (outcome && "reading" in part && !isBlank(outcome.translation.text)) {
        const { sentence, change, translation } = outcome;
        if (sentence) pieces.push(...withTags(sentence, block, tags, span, this.languages[1]));
        else pieces.push(applied(change, translation.text));
        tag = Math.max(tag, ...[...tags].map((index) => index + 1));
      } else
        copy(
          span[0],
          span[1],
          firstTag((index) => block.tags[index]!.offset >= offset),
        );
      sentences.push({ span, translation: outcome?.translation });
    }
    copy(offset, block.text.length, block.tags.length);
    return { pieces: merged(pieces), sentences };
  }
}

/** Pieces with texts side by side as one. */
function merged(pieces: readonly Piece[]): Piece[] {
  const found: Piece[] = [];
  for (const piece of pieces) {
    const last = found.at(-1);
    if (typeof piece === "string" && typeof last === "string") found[found.length - 1] = last + piece;
    else if (piece !== "") found.push(piece);
  }
  return found;
}
