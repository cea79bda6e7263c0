// Translates the page in which it is put. A content script cannot be a module, but can import one.
(async () => {
  const address = (path) => chrome.runtime.getURL(path);
  const { openPortTranslator } = await import(address("edgeformer/dist/index.js"));
  const { translateThisPage } = await import(address("this-page.js"));

  // The model is in a frame of the extension, to which the page's restrictions do not apply.
  const frame = document.createElement("iframe");
  frame.src = address("translator.html");
  frame.hidden = true;
  document.documentElement.append(frame);
  await new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  // The page can post messages to the frame, too, but only the extension's own scripts can announce a port to it.
  const secret = String(crypto.getRandomValues(new Uint32Array(4)));
  await chrome.runtime.sendMessage(secret);
  const { port1, port2 } = new MessageChannel();
  frame.contentWindow.postMessage(secret, address("").slice(0, -1), [port2]);

  await translateThisPage(() => openPortTranslator(port1, address("model/"), { storage: false }));
  frame.remove();
})();
