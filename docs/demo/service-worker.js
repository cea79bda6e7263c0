// Keeps the page and the package for visits without a connection. Models are kept by the package itself.
importScripts("files.js"); // sets `version`, and `files`, the addresses to keep; written when the site is built

const name = `edgeformer-demo-${self.version}`;

self.addEventListener("install", (event) => {
  const requests = self.files.map((file) => new Request(file, { cache: "reload" }));
  event.waitUntil(caches.open(name).then((cache) => cache.addAll(requests)).then(() => self.skipWaiting()));
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
