/**
 * The plan of a bundle: what the kernels compute, and where in `weights.bin` its weights are.
 *
 * The kernels get a plan as numbers in the order of the fields below, which is that of the plan in Python.
 */
import { type Check, type Checked, flag, list, oneOf, orNull, real, record, whole } from "./schema.js";

const MAX_LAYERS = 1024;
const offset = whole(0);
const ACTIVATIONS: readonly string[] = ["relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu"];

/** `y = x @ W.T + b` in integers: `count` outputs of a stored product of `columns`, from the output `first` on. */
const linear = record({
  columns: offset,
  first: offset,
  count: offset,
  by_rows: flag,
  weight: offset,
  scale: offset,
  bias: orNull(offset),
  input_scale: real(),
  input_zero: whole(),
  input_most: whole(),
});

const norm = record({ weight: orNull(offset), bias: orNull(offset) });

const embedding = record({
  rows: offset,
  table: offset,
  scale: offset,
  positions: offset,
  position: orNull(offset),
  norm,
});

const feedForward = record({ norm, inner: list(linear, 2, 1), outer: linear });

const encoderLayer = record({ norm, query_key_value: list(linear, 3, 3), output: linear, feed_forward: feedForward });

const decoderLayer = record({
  norm,
  target: list(linear, 3, 2),
  output: orNull(linear),
  memory: list(linear, 2, 2),
  cross_norm: norm,
  cross_query: linear,
  cross_output: linear,
  feed_forward: feedForward,
});

/** A Transformer in integers. */
export const plan = record({
  version: whole(),
  recurrent: flag,
  width: offset,
  heads: offset,
  key_width: offset,
  value_width: offset,
  encoder_inner: offset,
  decoder_inner: offset,
  norm_first: flag,
  norm_centers: flag,
  gated: flag,
  activation: oneOf(...ACTIVATIONS),
  epsilon: real(),
  encoder_scale: real(),
  decoder_scale: real(),
  cross_scale: real(),
  output_scale: real(),
  source: embedding,
  target: embedding,
  encoder: list(encoderLayer, MAX_LAYERS),
  encoder_norm: norm,
  decoder: list(decoderLayer, MAX_LAYERS),
  decoder_norm: norm,
  projection: linear,
} satisfies Record<string, Check<unknown>>);

export type Plan = Checked<typeof plan>;

/** Writes a checked plan as numbers: fields in order; layers after their number; -1 for a missing tensor. */
export function planNumbers(checked: Plan): Float64Array {
  const numbers: number[] = [];
  addNumbers(checked, numbers);
  return Float64Array.from(numbers);
}

function addNumbers(part: object, numbers: number[]): void {
  for (const [name, value] of Object.entries(part)) {
    if (Array.isArray(value)) {
      if (name === "encoder" || name === "decoder") numbers.push(value.length);
      for (const item of value) addNumbers(item, numbers);
    } else if (value === null) {
      if (name !== "output") numbers.push(-1); // a recurrence has no output product, which the numbers leave out
    } else if (typeof value === "object") addNumbers(value, numbers);
    else if (typeof value === "string") numbers.push(ACTIVATIONS.indexOf(value));
    else numbers.push(Number(value));
  }
}
