// The worker of the page, the bookmarklet and whoever else: the translator, with ONNX Runtime beside it.
import { serveTranslator } from "./edgeformer/dist/index.js";

serveTranslator(globalThis, {
  onnxruntime: async () => {
    const runtime = await import("./onnxruntime/ort.wasm.min.mjs");
    runtime.env.wasm.numThreads = 1; // more threads need headers that not every host of static files sends
    return runtime;
  },
});
