// Answers what comes through the port of a page.
import { serveTranslator } from "./edgeformer/dist/index.js";

addEventListener("message", ({ data, ports }) => {
  if (data === "serve") serveTranslator(ports[0]);
});
