/** Whether this is Node, or Bun, rather than a browser. */
export const isNode = typeof process !== "undefined" && process.versions?.node !== undefined;

/** The kernels' modules in this package. Their addresses are written out so that bundlers find them. */
export const OWN_MODULES = {
  plain: new URL("../wasm/edgeformer_kernels.wasm", import.meta.url),
  relaxed: new URL("../wasm/edgeformer_kernels_relaxed.wasm", import.meta.url),
};
