// The bookmarklet: translates the page that it is used on with the model of the demo page.
import { openPortTranslator } from "./edgeformer/dist/index.js";
import { showMessage, translateThisPage } from "./this-page.js";

const address = (path) => new URL(path, import.meta.url).href;

// A worker's script has to be of the page's origin, but may import others.
const script = new Blob([`import "${address("worker.js")}";`], { type: "text/javascript" });
const worker = new Worker(URL.createObjectURL(script), { type: "module" });
worker.addEventListener("error", () => showMessage("This page does not let the translator start."));
await translateThisPage(() => openPortTranslator(worker, address("model/"), { storage: false }));
worker.terminate();
