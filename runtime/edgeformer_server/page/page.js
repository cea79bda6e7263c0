"use strict";
// The page: asks /languages, /frontend/settings, /v1/models, /v1/translate, /translate and /translate_file of its own server.

const $ = (id) => document.getElementById(id);
const state = { languages: [], models: [], links: [], words: [], active: -1, settings: null, detected: "", request: null, timer: 0, others: "", theme: null };
const DETECT = "Detect language";
const darkSystem = matchMedia("(prefers-color-scheme: dark)");

function headers(type) {
  const key = $("key").value.trim();
  return { ...(type && { "Content-Type": type }), ...(key && { Authorization: `Bearer ${key}` }) };
}

async function ask(path, body, signal) {
  const options = body === undefined ? { headers: headers() }
    : body instanceof FormData ? { method: "POST", body, headers: headers(), signal }
    : { method: "POST", body: JSON.stringify(body), headers: headers("application/json"), signal };
  const size = body instanceof FormData ? body.get("file").size + 1000 : new Blob([options.body || ""]).size;
  const limit = state.settings?.[body instanceof FormData ? "fileSizeLimit" : "sizeLimit"];
  if (size > limit) throw new Error(`That is too large; this server takes ${limit.toLocaleString("en")} bytes at a time.`);
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached; try again.");
  }
  const answer = await response.json().catch(() => null);
  signal?.throwIfAborted();
  if (response.ok && !answer) throw new Error("The server's answer has been cut off; try again.");
  if (!response.ok) {
    const error = new Error(answer?.error || `The server answered with status ${response.status}.`);
    throw Object.assign(error, { wait: Number(response.headers.get("Retry-After")) });
  }
  return answer;
}

function say(text, isError = false, place = "status") {
  $(place).textContent = text;
  $(place).classList.toggle("error", isError);
}

function sayOfFile(text, isError = false) { // in a place of its own, which translating text does not clear
  say(text, isError, "file-status");
}

function nameOf(code) {
  const language = state.languages.find((each) => each.code === code);
  return language ? language.name : code;
}

function fill(select, codes, chosen) {
  select.replaceChildren(...codes.map((code) => new Option(code === "auto" ? DETECT : nameOf(code), code)));
  if (codes.includes(chosen)) select.value = chosen;
}

function fillTargets(chosen) {
  const source = state.languages.find((each) => each.code === $("source").value);
  const targets = source ? source.targets : [...new Set(state.languages.flatMap((each) => each.targets))].sort();
  fill($("target"), targets, chosen);
}

// Text with some parts marked: pairs of offsets in Unicode code points, as the server counts.
function marked(text, spans) {
  const characters = [...text], nodes = [];
  let done = 0;
  for (const [start, end] of [...spans].sort((a, b) => a[0] - b[0])) {
    if (start < done) continue;
    nodes.push(characters.slice(done, start).join(""));
    const mark = document.createElement("mark");
    mark.textContent = characters.slice(start, end).join("");
    nodes.push(mark);
    done = end;
  }
  return [...nodes, characters.slice(done).join("") + "\n"];
}

function stale(isStale) {
  const isShown = isStale && $("output").textContent !== "";
  $("output").classList.toggle("stale", isShown);
  $("stale").hidden = !isShown;
}

function show(translation) {
  const characters = [...translation.text], nodes = [];
  let done = 0;
  state.words = [];
  state.links = translation.sentences.flatMap((sentence) => sentence.words || []);
  for (const { target: [start, end], confidence, is_doubtful: isDoubtful, wrong_numbers: wrong } of translation.sentences) {
    nodes.push(characters.slice(done, start).join(""));
    const sentence = document.createElement("span");
    sentence.className = confidence === undefined ? "" : isDoubtful ? "low" : confidence < 0.7 ? "middle" : "high";
    if (confidence !== undefined) sentence.title = `Confidence ${Math.round(100 * confidence)} %${isDoubtful ? ": may be wrong" : ""}`;
    if (wrong) {
      sentence.classList.add("wrong");
      sentence.title = [sentence.title, `Check the numbers: ${wrong.join(", ")}`].filter(Boolean).join("; ");
    }
    let offset = start;
    for (const part of characters.slice(start, end).join("").split(/(\s+)/)) {
      const length = [...part].length;
      if (part.trim()) {
        const word = document.createElement("span");
        word.className = "word";
        word.textContent = part;
        state.words.push({ node: word, span: [offset, offset + length] });
        sentence.append(word);
      } else {
        sentence.append(part);
      }
      offset += length;
    }
    nodes.push(sentence);
    done = end;
  }
  $("output").replaceChildren(...nodes, characters.slice(done).join(""));
  stale(false);
  activate(-1);
}

function activate(index) {
  state.active = index;
  for (const [number, word] of state.words.entries()) word.node.classList.toggle("hit", number === index);
  const word = state.words[index];
  const sources = word ? state.links.filter((link) => link.target[0] < word.span[1] && word.span[0] < link.target[1]).map((link) => link.source) : [];
  const text = $("text").value;
  $("mirror").replaceChildren(...marked(text, sources));
  const characters = [...text];
  const words = sources.map(([start, end]) => characters.slice(start, end).join(""));
  $("spoken").textContent = word ? `${word.node.textContent} from ${words.join(", ") || "no word"}` : "";
}

function hasAttention() {
  return state.models.length > 0 && state.models.every((model) => model.has_attention);
}

async function translate() {
  clearTimeout(state.timer);
  state.request?.abort();
  const text = $("text").value, request = new AbortController();
  state.request = request;
  const source = $("source").value, target = $("target").value, auto = $("source").querySelector("[value=auto]");
  if (!text.trim()) {
    show({ text: "", sentences: [] });
    say("");
    if (auto) auto.text = DETECT;
    showModels(state.models.filter((model) => model.targets.includes(target) && (source === "auto" || model.sources.includes(source))).map((model) => model.name));
    return;
  }
  say("Translating…");
  try {
    const body = { texts: [text], source, target, scores: true, alignments: hasAttention() };
    const answer = await ask("v1/translate", body, request.signal);
    show(answer.translations[0]);
    $("output").lang = $("spoken").lang = target;
    $("text").lang = answer.source;
    $("spoken").textContent = $("output").textContent;
    state.detected = answer.source;
    if (auto) auto.text = source === "auto" ? `${nameOf(answer.source)} (detected)` : DETECT;
    showModels(answer.models || []);
    const sentences = answer.translations[0].sentences.filter((sentence) => sentence.confidence !== undefined);
    const doubtful = sentences.filter((sentence) => sentence.is_doubtful).length;
    const wrong = sentences.flatMap((sentence) => sentence.wrong_numbers || []);
    const warnings = doubtful ? [`${doubtful} of ${sentences.length} ${sentences.length > 1 ? "sentences" : "sentence"} may be wrong`] : [];
    if (wrong.length) warnings.push(`Check the numbers: ${wrong.join(", ")}`);
    say(warnings.join("; "), warnings.length > 0);
    if ($("others").open) alternatives();
  } catch (error) {
    if (error.name === "AbortError") return;
    stale(true);
    say(error.wait ? `The server is busy; trying again in ${error.wait} s.` : error.message, true);
    if (error.wait) state.timer = setTimeout(translate, 1000 * error.wait);
  }
}

function showModels(names) {
  $("model").textContent = names.length ? `${names.length > 1 ? "Models" : "Model"}: ${names.join(", ")}` : "";
}

async function alternatives() {
  const count = Math.min(3, state.settings.alternativesLimit);
  const body = { q: $("text").value, source: $("source").value, target: $("target").value, alternatives: count };
  const key = JSON.stringify(body);
  if (!body.q.trim() || key === state.others) return;
  try {
    const answer = await ask("translate", body, state.request?.signal);
    state.others = key;
    const shown = $("output").textContent;
    const texts = [answer.translatedText, ...answer.alternatives].filter((text) => text !== shown);
    $("alternatives").replaceChildren(...texts.map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      item.dir = "auto";
      item.lang = body.target;
      return item;
    }));
  } catch (error) {
    if (error.name !== "AbortError") say(error.message, true);
  }
}

async function translateFile(file) {
  if (!file) return;
  if (!state.settings?.filesTranslation) {
    sayOfFile("This server does not translate files.", true);
    return;
  }
  const form = new FormData();
  form.append("source", $("source").value);
  form.append("target", $("target").value);
  form.append("file", file);
  sayOfFile(`Translating ${file.name}…`);
  $("result").hidden = true;
  try {
    const answer = await ask("translate_file", form);
    const { pathname } = new URL(answer.translatedFileUrl);
    $("download").href = `download_file/${pathname.split("/").pop()}`;
    $("result").hidden = false;
    sayOfFile(`${file.name} is translated.`);
    $("download").focus();
  } catch (error) {
    sayOfFile(error.message, true);
  }
}

function changed() {
  const length = [...$("text").value].length, limit = state.settings?.charLimit;
  $("count").textContent = `${length}${limit > 0 ? ` of ${limit}` : ""} characters`;
  $("text").lang = $("source").value === "auto" ? "" : $("source").value;
  $("mirror").replaceChildren(...marked($("text").value, []));
  $("clear").hidden = !length;
  $("drop").classList.toggle("has-text", length > 0);
  stale(true);
  state.request?.abort(); // what was asked for the text before
  state.others = "";
  $("alternatives").replaceChildren();
  clearTimeout(state.timer);
  state.timer = setTimeout(translate, 400);
}

function swap() {
  const target = $("target").value;
  const source = $("source").value === "auto" ? state.detected : $("source").value;
  if (!state.languages.some((each) => each.code === target && each.targets.includes(source))) {
    say(`There is no translation from ${nameOf(target)}${source ? ` to ${nameOf(source)}` : ""}.`, true);
    return;
  }
  $("source").value = target;
  fillTargets(source);
  $("text").value = $("output").textContent;
  languagesChanged();
  translate();
}

function showTheme() { // the user's choice, or the system's
  const dark = state.theme ? state.theme === "dark" : darkSystem.matches;
  document.documentElement.classList.toggle("dark", dark);
  document.documentElement.classList.toggle("light", !dark);
  $("theme").setAttribute("aria-pressed", String(dark));
}

function stored(name, value) {
  try { // a browser may refuse
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function languagesChanged() {
  stored("source", $("source").value);
  stored("target", $("target").value);
  changed();
}

function listen() {
  $("text").addEventListener("input", changed);
  $("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && event.ctrlKey) translate(); });
  $("source").addEventListener("change", () => { fillTargets($("target").value); languagesChanged(); });
  $("target").addEventListener("change", languagesChanged);
  $("clear").addEventListener("click", () => { $("text").value = ""; changed(); translate(); $("text").focus(); });
  $("swap").addEventListener("click", swap);
  $("key").addEventListener("change", translate);
  $("shade").addEventListener("change", () => $("output").classList.toggle("shaded", $("shade").checked));
  $("others").addEventListener("toggle", () => { if ($("others").open) alternatives(); });
  $("copy").addEventListener("click", () => navigator.clipboard?.writeText($("output").textContent).then(() => say("Copied."), () => say("The browser does not allow copying.", true)));
  $("theme").addEventListener("click", () => {
    state.theme = document.documentElement.classList.contains("dark") ? "light" : "dark";
    stored("theme", state.theme);
    showTheme();
  });
  darkSystem.addEventListener("change", showTheme);
  $("output").addEventListener("pointerover", (event) => activate(state.words.findIndex((word) => word.node === event.target)));
  $("output").addEventListener("pointerleave", () => activate(-1));
  $("output").addEventListener("blur", () => activate(-1));
  $("output").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !state.words.length) return;
    event.preventDefault();
    activate(Math.min(state.words.length - 1, Math.max(0, state.active + step)));
  });
  $("file").addEventListener("change", () => { translateFile($("file").files[0]); $("file").value = ""; });
  $("drop").addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
  $("drop").addEventListener("dragleave", () => $("drop").classList.remove("over"));
  $("drop").addEventListener("drop", (event) => {
    $("drop").classList.remove("over");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    translateFile(event.dataTransfer.files[0]);
  });
}

async function start() {
  state.theme = stored("theme");
  showTheme();
  $("output").classList.add("shaded");
  listen();
  try {
    const [languages, settings, models] = await Promise.all([ask("languages"), ask("frontend/settings"), ask("v1/models")]);
    state.languages = languages;
    state.models = models.models;
    state.settings = settings;
    $("key-field").hidden = !settings.keyRequired;
    $("zone").hidden = !settings.filesTranslation;
    document.querySelector(".file").hidden = !settings.filesTranslation;
    $("zone").textContent = `Drop a file here: ${settings.supportedFilesFormat.map((suffix) => suffix.slice(1)).join(", ")}`;
    $("others").hidden = !settings.alternativesLimit;
    $("file").accept = settings.supportedFilesFormat.join(",");
    if (settings.charLimit > 0) $("text").maxLength = settings.charLimit;
    const sources = languages.filter((each) => each.targets.length).map((each) => each.code);
    const source = settings.language.source.code, kept = stored("source");
    const offered = source === "auto" && sources.length > 1 ? ["auto", ...sources] : sources;
    fill($("source"), offered, offered.includes(kept) ? kept : source);
    fillTargets(settings.language.target.code);
    if ([...$("target").options].some((option) => option.value === stored("target"))) $("target").value = stored("target");
    changed();
  } catch (error) {
    say(error.message, true);
  }
}

start();
