// Keeps the page and the package for visits without a connection. Models are kept by the package itself.
//
// `files.js`, which is written when the site is built, sets `version` and the addresses to keep: `files`, and `runtime`,
// which are those of ONNX Runtime, 14 MB, and kept if a model needs it.
importScripts("files.js");

const name = `edgeformer-demo-${self.version}`;

async function keep(files) {
  const cache = await caches.open(name);
  await cache.addAll(files.map((file) => new Request(file, { cache: "reload" })));
}

self.addEventListener("install", (event) => event.waitUntil(keep(self.files).then(() => self.skipWaiting())));

self.addEventListener("message", (event) => {
  if (event.data === "keep-onnxruntime") event.waitUntil(keep(self.runtime));
});

self.addEventListener("activate", (event) => {
  const removeOthers = async () => {
    for (const other of await caches.keys()) {
      if (other.startsWith("edgeformer-demo-") && other !== name) await caches.delete(other);
    }
    await self.clients.claim();
  };
  event.waitUntil(removeOthers());
});

self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  const kept = caches.open(name).then((cache) => cache.match(event.request, { ignoreSearch: true }));
  event.respondWith(kept.then((response) => response ?? fetch(event.request)));
});
