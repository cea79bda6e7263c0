// The demo page: opens a model in a worker, and shows each token as soon as it is decoded.
import { clearStorage, openPortTranslator } from "./edgeformer/dist/index.js";

const OWN_MODEL = new URL("model/", import.meta.url);
const MILLION = 1e6;
/** Tokens that are less probable are marked. */
const UNSURE = Math.log(0.5);

const element = (id) => document.getElementById(id);
const [source, target, status, progress] = ["source", "target", "status", "progress"].map(element);
let translator;
let worker;
let opening = new AbortController();
let running = new AbortController();

/** Opens a bundle in place of the model that is open; see `BundleLocation` in the package. */
async function open(location) {
  opening.abort();
  running.abort();
  const { signal } = (opening = new AbortController());
  worker?.terminate();
  worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  translator = undefined;
  element("translate").disabled = true;
  status.textContent = "Loading the model…";
  try {
    translator = await openPortTranslator(worker, location, { onProgress: showProgress, signal });
    element("translate").disabled = false;
    showModel();
  } catch (error) {
    if (!signal.aborted) status.textContent = error.message;
  } finally {
    if (!signal.aborted) progress.hidden = true;
  }
}

function showProgress({ loaded, total }) {
  progress.hidden = false;
  progress.max = total;
  progress.value = loaded;
}

function showModel() {
  const { source_language: from, target_language: to, parameters, plan } = translator.manifest;
  const names = new Intl.DisplayNames("en", { type: "language", fallback: "code" });
  const named = (code) => (code ? names.of(code) : "its language");
  const size = (parameters / MILLION).toFixed(parameters < MILLION ? 2 : 1);
  const slow = plan ? "" : " It runs in ONNX Runtime; models exported as int8 are several times as fast here.";
  status.textContent = `Ready: from ${named(from)} to ${named(to)}, ${size} million parameters.${slow}`;
  if (!plan) navigator.serviceWorker?.ready.then(({ active }) => active.postMessage("keep-onnxruntime"));
  element("words").lang = source.lang = from || "";
  target.lang = to || "";
}

/** The sentences of a text, and what is between them. */
function* parts(text) {
  const segmenter = new Intl.Segmenter(source.lang || undefined, { granularity: "sentence" });
  for (const line of text.split(/(\n+)/)) {
    for (const { segment } of segmenter.segment(line)) {
      const sentence = segment.trim();
      const start = segment.indexOf(sentence);
      yield { before: segment.slice(0, start), sentence, after: segment.slice(start + sentence.length) };
    }
  }
}

async function translate() {
  if (!translator) return;
  running.abort();
  const { signal } = (running = new AbortController());
  target.replaceChildren();
  element("words").replaceChildren();
  element("words-hint").hidden = true;
  target.setAttribute("aria-busy", "true");
  element("stop").disabled = false;
  element("confidence").textContent = "";
  const scores = [];
  const start = performance.now();
  try {
    for (const { before, sentence, after } of parts(source.value)) {
      target.append(before);
      if (sentence) scores.push(...(await translateSentence(sentence, signal)));
      target.append(after);
    }
    showConfidence(scores, performance.now() - start);
  } catch (error) {
    if (!signal.aborted) element("confidence").textContent = error.message;
  } finally {
    if (running.signal === signal) {
      target.setAttribute("aria-busy", "false");
      element("stop").disabled = true;
    }
  }
}

/** Shows a sentence token by token, and returns the log-probabilities of its tokens. */
async function translateSentence(sentence, signal) {
  const view = target.appendChild(document.createElement("span"));
  const scores = [];
  const tokens = [];
  for await (const step of translator.translateTokens(sentence, { returnAttention: translator.hasAttention, signal })) {
    scores.push(step.logProbability);
    tokens.push(showToken(view, step.text, step.logProbability < UNSURE));
    const attention = step.translation?.hypotheses[0].attention;
    if (attention) showAlignment(attention, tokens);
  }
  return scores;
}

/** Replaces the end of what is shown by what is new in a text, in an element for the token, which is returned. */
function showToken(view, text, isUnsure) {
  for (const shown of [...view.children].reverse()) {
    if (text.startsWith(view.textContent)) break;
    shown.textContent = "";
  }
  const token = view.appendChild(document.createElement("span"));
  token.textContent = text.slice(view.textContent.length);
  if (isUnsure) {
    token.className = "unsure";
    token.title = "The model is not sure here.";
  }
  return token;
}

/** Shows the tokens of the source; those that belong together are marked when the pointer is on one of them. */
function showAlignment({ sourceTokens, alignment }, targets) {
  element("words-hint").hidden = false;
  const view = element("words").appendChild(document.createElement("p"));
  const sources = sourceTokens.slice(0, -1).map((token) => {
    const shown = view.appendChild(document.createElement("span"));
    shown.textContent = token.replace(/[\u2581\u0120]/g, " "); // the signs for a space in vocabularies
    return shown;
  });
  const partners = new Map([...sources, ...targets].map((shown) => [shown, new Set([shown])]));
  for (const [from, to] of alignment) {
    partners.get(sources[from]).add(targets[to]);
    partners.get(targets[to]).add(sources[from]);
  }
  for (const [shown, together] of partners) {
    const mark = (isMarked) => () => together.forEach((each) => each.classList.toggle("together", isMarked));
    shown.addEventListener("pointerenter", mark(true));
    shown.addEventListener("pointerleave", mark(false));
  }
}

function showConfidence(scores, milliseconds) {
  if (!scores.length) return;
  const mean = Math.exp(scores.reduce((sum, score) => sum + score, 0) / scores.length);
  const took = `${scores.length} tokens in ${Math.round(milliseconds)} ms`;
  element("confidence").textContent = `Confidence ${Math.round(100 * mean)} %, ${took}. Dotted words are less certain.`;
}

element("text-form").addEventListener("submit", (event) => {
  event.preventDefault();
  translate();
});
source.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
});
element("stop").addEventListener("click", () => running.abort());
element("address-form").addEventListener("submit", (event) => {
  event.preventDefault();
  open(element("address").value);
});
element("folder").addEventListener("change", ({ target: { files } }) => files.length && open([...files]));
element("default-model").addEventListener("click", () => open(OWN_MODEL));
element("forget").addEventListener("click", async () => {
  await clearStorage();
  status.textContent = "Downloaded models are deleted.";
});
element("bookmarklet").href = `javascript:void import("${new URL("translate-page.js", import.meta.url)}")`;

navigator.serviceWorker?.register("service-worker.js");
open(OWN_MODEL);
