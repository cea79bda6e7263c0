/** Whether this is Node, or Bun, rather than a browser. */
export const isNode = typeof process !== "undefined" && process.versions?.node !== undefined;
