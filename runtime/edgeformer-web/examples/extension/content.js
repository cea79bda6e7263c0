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
  const { port1, port2 } = new MessageChannel();
  frame.contentWindow.postMessage("serve", address("").slice(0, -1), [port2]);

  await translateThisPage(() => openPortTranslator(port1, address("model/"), { storage: false }));
  frame.remove();
})();
