/**
 * Checks of values by the constraints of Python's types, which `generated.ts` has. A record is rebuilt with its fields in
 * the order of Python's, with the defaults of those that are missing; fields that Python does not know are refused.
 */
import { type Definitions, SCHEMA } from "../generated.js";

/** What is wrong with a value, as a sentence without its end. */
export class SchemaProblem extends Error {}

/** A JSON schema, as far as it is used. */
interface Schema {
  $ref?: string;
  type?: string;
  enum?: readonly unknown[];
  anyOf?: readonly Schema[];
  default?: unknown;
  minimum?: number;
  maximum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  items?: Schema;
  minItems?: number;
  maxItems?: number;
  properties?: Record<string, Schema>;
  propertyNames?: Schema;
  additionalProperties?: Schema | boolean;
  maxProperties?: number;
}

/** Names of fields that tell the records of a union apart. */
const TAGS = ["type", "kind"];
const SCHEMAS = SCHEMA as { [Name in keyof Definitions]: Schema };

/**
 * Returns a value with its type and all fields.
 *
 * @throws SchemaProblem: names the field that is wrong, and what it must be.
 */
export function checked<Name extends keyof Definitions>(name: Name, value: unknown): Definitions[Name] {
  return check(SCHEMAS[name], value, "") as Definitions[Name];
}

/** Returns a field of a type; see `checked`. */
export function checkedField(name: keyof Definitions, field: string, value: unknown): unknown {
  return check(SCHEMAS[name].properties![field]!, value, field);
}

/** Reads and checks JSON; see `checked`. */
export function parsed<Name extends keyof Definitions>(name: Name, data: Uint8Array): Definitions[Name] {
  return checked(name, parsedJson(data));
}

/** @throws SchemaProblem: it is not JSON in UTF-8. */
export function parsedJson(data: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data));
  } catch {
    throw new SchemaProblem("it is not valid JSON");
  }
}

function check(given: Schema, value: unknown, path: string): unknown {
  const schema = resolved(given);
  if (value === undefined && "default" in schema) return check(schema, schema.default, path);
  const must = (what: string) => new SchemaProblem(`${path ? `\`${path}\`` : "its content"} must be ${what}`);
  if (schema.anyOf) {
    const branch = schema.anyOf.find((each) => fits(each, value));
    if (branch) return check(branch, value, path);
    throw must(schema.anyOf.map(described).join(" or "));
  }
  if (!fits(schema, value)) throw must(described(schema));
  if (Array.isArray(value)) {
    const { items = {}, minItems: least = 0, maxItems: most = Number.POSITIVE_INFINITY } = schema;
    if (value.length < least || value.length > most) throw must(`a list of ${least} to ${most} entries`);
    return value.map((item, index) => check(items, item, `${path}[${index}]`));
  }
  if (schema.type === "object") return checkRecord(schema, value as Record<string, unknown>, path);
  if (typeof value === "number") {
    const { minimum: least = -Infinity, maximum: most = Infinity, exclusiveMaximum: end = Infinity } = schema;
    if (!(least <= value && value <= most && value < end))
      throw must(`${described(schema)} from ${least} to ${Math.min(most, end)}`);
  }
  if (typeof value === "string" && schema.type === "string") {
    const { minLength: least = 0, maxLength: most = Number.POSITIVE_INFINITY, pattern } = schema;
    if (value.length < least || (value.length > most && [...value].length > most))
      throw must(`a text of ${least} to ${most} characters`);
    if (pattern && !new RegExp(pattern, "u").test(value)) throw must("a text without unsuitable characters");
  }
  return value;
}

function checkRecord(schema: Schema, value: Record<string, unknown>, path: string): Record<string, unknown> {
  const { properties = {}, propertyNames = {}, additionalProperties: others, maxProperties = Infinity } = schema;
  const within = (name: string) => (path ? `${path}.${name.slice(0, 99)}` : name.slice(0, 99));
  const names = Object.keys(value).filter((name) => !Object.hasOwn(properties, name));
  if (others === false && names.length) throw new SchemaProblem(`\`${within(names[0]!)}\` is unknown`);
  if (names.length > maxProperties) throw new SchemaProblem(`\`${path}\` must have at most ${maxProperties} entries`);
  const entries = Object.entries(properties).map(([name, field]) => [name, check(field, value[name], within(name))]);
  for (const name of names) {
    if (propertyNames.pattern) check({ type: "string", ...propertyNames }, name, `a name in ${path}`);
    entries.push([name, check(typeof others === "object" ? others : {}, value[name], within(name))]);
  }
  return Object.fromEntries(entries);
}

/** A schema without references; a default beside a reference stays. */
function resolved(schema: Schema): Schema {
  if (!schema.$ref) return schema;
  const { $ref, ...own } = schema;
  return { ...SCHEMAS[$ref.split("/").at(-1) as keyof Definitions], ...own };
}

/** Whether a value is of the type of a schema, and, if it is a record, has the tag of the schema's record. */
function fits(given: Schema, value: unknown): boolean {
  const schema = resolved(given);
  if (schema.anyOf) return schema.anyOf.some((each) => fits(each, value));
  if (schema.enum) return schema.enum.includes(value);
  const tag = tagOf(schema);
  switch (schema.type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "integer":
      return Number.isInteger(value);
    case "number":
      return Number.isFinite(value);
    case "object":
      if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
      return !tag || (value as Record<string, unknown>)[tag[0]] === tag[1];
    default:
      return schema.type === undefined || typeof value === schema.type;
  }
}

/** The field that tells a record from others of a union, and its value. */
function tagOf({ properties = {} }: Schema): [name: string, value: unknown] | undefined {
  const name = TAGS.find((tag) => properties[tag]?.enum?.length === 1);
  return name === undefined ? undefined : [name, properties[name]!.enum![0]];
}

/** What a value of a schema is, in words. */
function described(given: Schema): string {
  const schema = resolved(given);
  if (schema.anyOf) return schema.anyOf.map(described).join(" or ");
  if (schema.enum) return `one of ${schema.enum.join(", ")}`;
  const tag = tagOf(schema);
  if (tag) return `an object with ${tag[0]} \`${tag[1]}\``;
  const names = { integer: "a whole number", number: "a number", string: "a text", boolean: "true or false" };
  const others = { array: "a list", object: "an object", null: "null" };
  return ({ ...names, ...others } as Record<string, string>)[schema.type ?? ""] ?? "anything";
}
