/** Protobuf's wire format, as far as SentencePiece models need it. */
import { SchemaProblem } from "../bundle/schema.js";

/** A field of a message. */
export interface Field {
  number: number;
  /** First byte of its content, and the one after its last. */
  start: number;
  end: number;
  /** Its value, if it is a whole number; `NaN` otherwise. */
  value: number;
}

const VARINT = 0;
const BYTES = 2;
/** Bytes of the types of fixed size: 64 bits and 32 bits. */
const FIXED: Record<number, number> = { 1: 8, 5: 4 };

/**
 * The fields of a message, in order.
 *
 * @throws SchemaProblem: the message is damaged.
 */
export function* fields(data: Uint8Array, start: number, end: number): Generator<Field> {
  let offset = start;
  while (offset < end) {
    const key = varint(data, offset, end);
    const kind = key.value & 7;
    let begin = key.end;
    let value = Number.NaN;
    if (kind === VARINT) {
      const number = varint(data, begin, end);
      value = number.value;
      offset = number.end;
    } else if (kind === BYTES) {
      const length = varint(data, begin, end);
      begin = length.end;
      offset = begin + length.value;
    } else {
      offset = begin + (FIXED[kind] ?? Number.POSITIVE_INFINITY); // groups are not read
    }
    if (offset > end || key.value >= 2 ** 32) throw damaged();
    yield { number: Math.floor(key.value / 8), start: begin, end: offset, value };
  }
}

/** A whole number of 7 bits a byte, the lowest first, and where it ends. Those beyond 2^53 are not exact. */
function varint(data: Uint8Array, start: number, end: number): { value: number; end: number } {
  let value = 0;
  for (let index = 0; index < 10 && start + index < end; index++) {
    const byte = data[start + index]!;
    value += (byte & 0x7f) * 2 ** (7 * index);
    if (byte < 0x80) return { value, end: start + index + 1 };
  }
  throw damaged();
}

function damaged(): SchemaProblem {
  return new SchemaProblem("it is truncated, or not a SentencePiece model");
}
