/** A page in WebKit's MiniBrowser, Safari's engine, driven by WebDriver on a screen that nobody sees. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import type { Tab } from "./support.js";

/** Keys of WebDriver; the last one releases the modifiers. */
const KEYS = { Enter: "\ue007", "Control+Enter": "\ue009\ue007\ue000" };

export async function openWebKit(binary: string): Promise<{ tab: Tab; close(): Promise<void> }> {
  const screen = spawn("Xvfb", ["-displayfd", "1", "-nolisten", "tcp"], { stdio: ["ignore", "pipe", "ignore"] });
  const [display] = (await once(screen.stdout, "data")) as [Buffer];
  const port = await freePort();
  const env = { ...process.env, DISPLAY: `:${display.toString().trim()}`, WEBKIT_DISABLE_COMPOSITING_MODE: "1" };
  const driver = spawn("WebKitWebDriver", [`--port=${port}`], { env, stdio: "ignore" });
  const address = `http://127.0.0.1:${port}/session`;
  const capabilities = { "webkitgtk:browserOptions": { binary, args: ["--automation"] } };
  const { sessionId } = await started(() =>
    send<{ sessionId: string }>(address, { capabilities: { alwaysMatch: capabilities } }),
  );
  return {
    tab: new WebKitTab(`${address}/${sessionId}`),
    async close() {
      await fetch(`${address}/${sessionId}`, { method: "DELETE" });
      await Promise.all([driver, screen].map(ended));
    },
  };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

/** Repeats what fails as long as the driver does not listen yet. */
async function started<T>(run: () => Promise<T>): Promise<T> {
  for (let tries = 0; ; tries++) {
    try {
      return await run();
    } catch (error) {
      if (tries === 100 || !(error instanceof TypeError)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

async function ended(child: ChildProcess): Promise<void> {
  child.kill();
  await once(child, "exit");
}

async function send<T>(address: string, body: object): Promise<T> {
  const response = await fetch(address, { method: "POST", body: JSON.stringify(body) });
  const { value } = (await response.json()) as { value: T & { message?: string } };
  if (!response.ok) throw new Error(value.message);
  return value;
}

class WebKitTab implements Tab {
  constructor(private readonly session: string) {}

  goto(url: string): Promise<unknown> {
    return send(`${this.session}/url`, { url });
  }

  reload(): Promise<unknown> {
    return send(`${this.session}/refresh`, {});
  }

  async evaluate<R, A>(run: string | ((given: A) => R | Promise<R>), given?: A): Promise<R> {
    if (typeof run === "string") return send(`${this.session}/execute/sync`, { script: run, args: [] });
    const script = `const [given, done] = arguments;
      (async () => (${run})(given))().then((value) => done({ value }), (error) => done({ problem: String(error) }));`;
    type Outcome = { value: R; problem?: string };
    const { value, problem } = await send<Outcome>(`${this.session}/execute/async`, { script, args: [given] });
    if (problem) throw new Error(problem);
    return value;
  }

  fill(selector: string, text: string): Promise<void> {
    return this.evaluate(
      ([wanted, value]) => {
        const field = document.querySelector<HTMLInputElement | HTMLTextAreaElement>(wanted)!;
        field.focus();
        field.value = value;
        field.dispatchEvent(new Event("input", { bubbles: true }));
      },
      [selector, text] as const,
    );
  }

  async click(selector: string): Promise<void> {
    await send(`${this.session}/element/${await this.element(selector)}/click`, {});
  }

  async press(selector: string, key: keyof typeof KEYS): Promise<void> {
    await send(`${this.session}/element/${await this.element(selector)}/value`, { text: KEYS[key] });
  }

  async hover(selector: string): Promise<void> {
    const origin = { [ELEMENT]: await this.element(selector) };
    const actions = [{ type: "pointerMove", duration: 0, origin, x: 0, y: 0 }];
    await send(`${this.session}/actions`, { actions: [{ type: "pointer", id: "mouse", actions }] });
  }

  private async element(selector: string): Promise<string> {
    const found = await send<Record<string, string>>(`${this.session}/element`, {
      using: "css selector",
      value: selector,
    });
    return found[ELEMENT]!;
  }
}

/** The name of an element's number in WebDriver. */
const ELEMENT = "element-6066-11e4-a52e-4f735466cecf";
