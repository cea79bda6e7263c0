// Translates the page it is imported in, and says at its foot how far it is.
import { translatePage } from "./edgeformer/dist/index.js";

/** Shows a message at the foot of the page, in place of the one before. */
export function showMessage(text) {
  const id = "edgeformer-message";
  let message = document.getElementById(id);
  if (!message) {
    message = document.createElement("div");
    message.id = id;
    message.lang = "en";
    message.translate = false;
    message.setAttribute("role", "status");
    message.style.cssText =
      "position:fixed;inset:auto 1rem 1rem auto;z-index:2147483647;padding:.5rem 1rem;background:#1b1b1f;color:#fff";
    document.body.append(message);
  }
  message.textContent = text;
}

/**
 * Translates the page in place, from the top to the bottom; the message says what went wrong.
 *
 * @param open returns a promise of a translator.
 */
export async function translateThisPage(open) {
  try {
    showMessage("Loading the model…");
    const translator = await open();
    const onProgress = (done, all) => showMessage(`Translating: ${Math.round((100 * done) / all)} %`);
    await translatePage(translator, document.documentElement, { onProgress });
    showMessage("Translated on this device.");
  } catch (error) {
    showMessage(error.message);
  }
}
