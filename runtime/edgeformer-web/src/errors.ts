/** What users can cause and fix. Messages are full sentences that state the problem, the value and the next step. */
export type ErrorKind = "bundle" | "engine" | "option" | "input" | "model" | "closed";

/** The error that this package raises deliberately. */
export class EdgeformerError extends Error {
  override readonly name = "EdgeformerError";
  /** What is wrong: the bundle, the engine, an option, a text or the model's numbers; or that it was closed. */
  readonly kind: ErrorKind;

  constructor(kind: ErrorKind, message: string) {
    super(message);
    this.kind = kind;
  }
}
