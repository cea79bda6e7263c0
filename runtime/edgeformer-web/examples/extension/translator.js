// Answers what comes through the port that the extension's own script announced; pages can post messages here, too.
import { serveTranslator } from "./edgeformer/dist/index.js";

const announced = new Set();
chrome.runtime.onMessage.addListener((secret, _, answer) => {
  announced.add(secret);
  answer(true);
});
addEventListener("message", ({ data, ports }) => {
  if (announced.delete(data)) serveTranslator(ports[0]);
});
