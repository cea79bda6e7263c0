/**
 * Checks of values from files, by which they get a type. A record is rebuilt with its fields in the order of its schema,
 * with the defaults of those that are missing; fields that a schema lacks are refused.
 */

/** Returns the value with its type, or throws a `SchemaProblem`. */
export type Check<T> = (value: unknown, path: string) => T;
/** The type of what a check lets through. */
export type Checked<C> = C extends Check<infer T> ? T : never;

/** What is wrong with a value, as a sentence without its end. */
export class SchemaProblem extends Error {}

const CONTROL = /\p{Cc}/u;

/** A whole number. */
export function whole(least = -(2 ** 53), most = 2 ** 53): Check<number> {
  return (value, path) => {
    if (typeof value === "number" && Number.isInteger(value) && least <= value && value <= most) return value;
    throw new SchemaProblem(`\`${path}\` must be a whole number from ${least} to ${most}`);
  };
}

/** A finite number. */
export function real(least = -Infinity, most = Infinity): Check<number> {
  return (value, path) => {
    if (typeof value === "number" && Number.isFinite(value) && least <= value && value <= most) return value;
    throw new SchemaProblem(`\`${path}\` must be a number`);
  };
}

/** A text without control characters. */
export function text(most = 200): Check<string> {
  return (value, path) => {
    if (typeof value === "string" && value.length <= most && !CONTROL.test(value)) return value;
    throw new SchemaProblem(`\`${path}\` must be a text of at most ${most} characters`);
  };
}

/** `true` or `false`. */
export const flag: Check<boolean> = (value, path) => {
  if (typeof value === "boolean") return value;
  throw new SchemaProblem(`\`${path}\` must be true or false`);
};

/** One of some texts. */
export function oneOf<const T extends string>(...known: readonly T[]): Check<T> {
  return (value, path) => {
    const found = known.find((name) => name === value);
    if (found !== undefined) return found;
    throw new SchemaProblem(`\`${path}\` must be one of ${known.join(", ")}`);
  };
}

/** A value, or `null`. */
export function orNull<T>(check: Check<T>): Check<T | null> {
  return (value, path) => (value === null ? null : check(value, path));
}

/** A value that may be missing. */
export function optional<T>(check: Check<T>, fallback: T): Check<T> {
  return (value, path) => (value === undefined ? fallback : check(value, path));
}

/** What this package does not read. */
export const anything: Check<unknown> = (value) => value;

/** A list. */
export function list<T>(check: Check<T>, most: number, least = 0): Check<T[]> {
  return (value, path) => {
    if (!Array.isArray(value) || value.length < least || value.length > most)
      throw new SchemaProblem(`\`${path}\` must be a list of ${least} to ${most} entries`);
    return value.map((item, index) => check(item, `${path}[${index}]`));
  };
}

/** A record with any names. */
export function named<T>(check: Check<T>, most: number): Check<Record<string, T>> {
  return (value, path) => {
    const entries = Object.entries(asRecord(value, path));
    if (entries.length > most) throw new SchemaProblem(`\`${path}\` must have at most ${most} entries`);
    const name = text();
    return Object.fromEntries(entries.map(([key, item]) => [name(key, path), check(item, `${path}.${key}`)]));
  };
}

/** A record with known fields. */
export function record<F extends Record<string, Check<unknown>>>(fields: F): Check<{ [N in keyof F]: Checked<F[N]> }> {
  return (value, path) => {
    const given = asRecord(value, path);
    const within = (name: string) => (path ? `${path}.${name}` : name);
    for (const name of Object.keys(given))
      if (!Object.hasOwn(fields, name)) throw new SchemaProblem(`\`${within(name.slice(0, 200))}\` is unknown`);
    const checked = Object.entries(fields).map(([name, check]) => [name, check(given[name], within(name))]);
    return Object.fromEntries(checked) as { [N in keyof F]: Checked<F[N]> };
  };
}

function asRecord(value: unknown, path: string): Record<string, unknown> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new SchemaProblem(`\`${path}\` must be an object`);
}
