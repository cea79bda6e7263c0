/** Translation models in the browser and in Node. */
export { type BundleLocation, type OpenBundleOptions, openBundle, type Progress } from "./bundle/bundle.js";
export type { Manifest } from "./bundle/manifest.js";
export { clearStorage, type Store } from "./bundle/storage.js";
export type { DecodeOptions, Token, TokensOrText } from "./decoding/options.js";
export type {
  Attention,
  CallOptions,
  GoldenResult,
  TextHypothesis,
  TokenStep,
  Translation,
  Translator,
} from "./decoding/translation.js";
export { type OpenOptions, openTranslator } from "./decoding/translator.js";
export type { WasmSource } from "./engine/wasm.js";
export { EdgeformerError, type ErrorKind } from "./errors.js";
export type { Block, Piece } from "./text/block.js";
export { type PageOptions, translatePage } from "./text/page.js";
export { translateText } from "./text/plain.js";
export type { BlockTranslation, TextOptions } from "./text/text_translator.js";
export { openPortTranslator, openWorkerTranslator } from "./worker/client.js";
export type { Port } from "./worker/protocol.js";
export { serveTranslator } from "./worker/server.js";
