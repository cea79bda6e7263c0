/** The plan of a bundle: what the kernels compute, and where in `weights.bin` its weights are. */
import type { Plan } from "../generated.js";

/** In the order of the numbers that stand for them. */
const ACTIVATIONS: readonly string[] = ["relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu"];

/**
 * Writes a checked plan as numbers: fields in the order of Python's, which that of a checked record is; layers after their
 * number; -1 for a missing tensor.
 */
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
