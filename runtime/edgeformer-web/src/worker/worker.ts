/** The script of the worker. */
import type { Port } from "./protocol.js";
import { serveTranslator } from "./server.js";

serveTranslator(globalThis as unknown as Port);
