// Shared fixtures: pages whose faults fail the test, sandboxes that are removed afterwards, and
// helpers.

import { test as base, expect, type BrowserContext, type Locator, type Page } from "@playwright/test";

export { expect };

export const key = process.env.OSB_API_KEY ?? "";
export const image = process.env.OSB_IMAGE ?? "debian:bookworm-slim";

type Sandbox = { id: string; short: string };

/** The part of the lifecycle API that the tests need. */
export class Api {
  constructor(readonly url: string) {}

  async call(method: string, path: string, body?: unknown): Promise<Response> {
    const response = await fetch(`${this.url}/v1${path}`, {
      method,
      headers: { "OPEN-SANDBOX-API-KEY": key, "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (!response.ok && response.status !== 404) {
      throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    }
    return response;
  }

  async create(entrypoint: string[] = ["tail", "-f", "/dev/null"], metadata = {}): Promise<Sandbox> {
    const response = await this.call("POST", "/sandboxes", {
      image: { uri: image },
      entrypoint,
      timeout: 900,
      resourceLimits: { cpu: "500m", memory: "256Mi" },
      metadata: { suite: "browser", ...metadata },
    });
    const { id } = (await response.json()) as { id: string };
    return { id, short: id.slice(0, 8) };
  }

  /** Runs a command in a sandbox, without the console; its output. */
  async run(id: string, command: string): Promise<string> {
    const place = await (await this.call("GET", `/sandboxes/${id}/endpoints/44772`)).json();
    const { endpoint, headers } = place as { endpoint: string; headers: Record<string, string> };
    const answer = await fetch(`http://${endpoint}/command`, {
      method: "POST",
      headers: { ...headers, "Content-Type": "application/json" },
      body: JSON.stringify({ command }),
    });
    if (!answer.ok) throw new Error(`${command}: ${answer.status} ${await answer.text()}`);
    return await answer.text();
  }

  async remove(id: string): Promise<void> {
    await this.call("DELETE", `/sandboxes/${id}`);
  }

  async mine(): Promise<string[]> {
    const response = await this.call("GET", "/sandboxes?metadata=suite%3Dbrowser&pageSize=200");
    const { items } = (await response.json()) as { items: { id: string }[] };
    return items.map((item) => item.id);
  }
}

/** Collects faults of a page: errors, failed requests and policy violations. */
function watch(context: BrowserContext, origin: string, faults: string[]): void {
  context.on("request", (request) => {
    const url = new URL(request.url());
    if (!["data:", "blob:"].includes(url.protocol) && url.host !== new URL(origin).host) {
      faults.push(`request to another origin: ${request.url()}`);
    }
  });
  // Containers come and go on this machine, and their network interfaces with them: Chromium then
  // breaks requests off. Pages repeat them.
  let networkChanged = false;
  context.on("console", (message) => {
    if (message.text().includes("net::ERR_NETWORK_CHANGED")) {
      networkChanged = true;
      return;
    }
    if (networkChanged && message.text().includes("TypeError: Failed to fetch")) return;
    if (message.type() === "error" || message.type() === "warning") {
      faults.push(`console ${message.type()}: ${message.text()}`);
    }
  });
  context.on("weberror", (error) => faults.push(`uncaught: ${error.error()}`));
}

async function reportViolations(context: BrowserContext, faults: string[]): Promise<void> {
  await context.exposeBinding("__violation", (_source, text: string) => faults.push(text));
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      const text = `CSP: ${event.violatedDirective} blocked ${event.blockedURI}`;
      (window as unknown as { __violation(text: string): void }).__violation(text);
    });
  });
}

export const test = base.extend<{ api: Api; faults: string[]; sandbox: Sandbox }>({
  // Removes what the test created, with the API or with the pages.
  api: [
    async ({ baseURL }, use) => {
      const api = new Api(baseURL!);
      const before = new Set(await api.mine());
      await use(api);
      for (const id of await api.mine()) {
        if (!before.has(id)) await api.remove(id);
      }
    },
    { auto: true },
  ],
  // Faults of this test's pages. Any fault fails the test.
  faults: [
    async ({ context, baseURL }, use) => {
      const faults: string[] = [];
      watch(context, baseURL!, faults);
      await reportViolations(context, faults);
      await use(faults);
      expect(faults).toEqual([]);
    },
    { auto: true },
  ],
  sandbox: async ({ api }, use) => {
    await use(await api.create());
  },
});

export async function logIn(page: Page, next = "/console/sandboxes"): Promise<void> {
  await page.goto(`/console/login?next=${encodeURIComponent(next)}`);
  const field = page.getByLabel("API key");
  if (await field.isVisible()) await field.fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page).toHaveURL(new RegExp(`${next.split("?")[0]}`));
}

/** Waits until the page is hydrated and its connection is live. */
export async function hydrated(page: Page): Promise<void> {
  await expect(page.locator(".link-state[data-state=live]")).toBeVisible();
}

/** The row of a sandbox in the list. */
export function row(page: Page, sandbox: Sandbox) {
  return page.getByRole("row").filter({ hasText: sandbox.short });
}

/** The text of the terminal, with wrapped lines joined. */
export async function screen(page: Page): Promise<string> {
  const rows = await page.locator(".xterm-rows > div").allInnerTexts();
  return rows.join("\n").replaceAll("\u00a0", " ");
}

export async function type(page: Page, line: string): Promise<void> {
  await page.locator(".terminal .xterm").click();
  await page.keyboard.type(line);
  await page.keyboard.press("Enter");
}

/** Moves the focus with the Tab key until this has it. */
export async function tabTo(page: Page, target: Locator): Promise<void> {
  for (let step = 0; step < 120; step += 1) {
    if (await target.evaluate((it) => it === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error("the Tab key does not lead there");
}
