// Shared fixtures: pages whose faults fail the test, sandboxes that are removed afterwards, and
// helpers.

import {
  test as base,
  expect,
  type BrowserContext,
  type Locator,
  type Page,
} from "@playwright/test";
import { type Runtime, Servers } from "./server";

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

  async create(
    entrypoint: string[] = ["tail", "-f", "/dev/null"],
    metadata = {},
    networkPolicy?: unknown,
  ): Promise<Sandbox> {
    const response = await this.call("POST", "/sandboxes", {
      image: { uri: image },
      entrypoint,
      timeout: 900,
      resourceLimits: { cpu: "500m", memory: "256Mi" },
      metadata: { suite: "browser", ...metadata },
      networkPolicy,
    });
    const { id } = (await response.json()) as { id: string };
    return { id, short: id.slice(0, 8) };
  }

  /** A sandbox from a snapshot. */
  async createFrom(snapshotId: string, metadata = {}): Promise<Sandbox> {
    const response = await this.call("POST", "/sandboxes", {
      snapshotId,
      entrypoint: ["tail", "-f", "/dev/null"],
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

  /** Takes a snapshot of a sandbox, and waits until it is ready; its id. */
  async snapshot(id: string, name: string): Promise<string> {
    const taken = await this.call("POST", `/sandboxes/${id}/snapshots`, { name });
    const snapshot = (await taken.json()) as { id: string };
    await expect.poll(() => this.stateOf(snapshot.id)).toBe("Ready");
    return snapshot.id;
  }

  /** The state of a snapshot; nothing once it is gone. */
  async stateOf(snapshot: string): Promise<string | undefined> {
    const answer = await this.call("GET", `/snapshots/${snapshot}`);
    if (answer.status === 404) return undefined;
    return ((await answer.json()) as { status: { state: string } }).status.state;
  }

  /** Ids of all snapshots; none on a runtime without them. */
  async snapshots(): Promise<string[]> {
    const headers = { "OPEN-SANDBOX-API-KEY": key };
    const answer = await fetch(`${this.url}/v1/snapshots?pageSize=200`, { headers });
    if (!answer.ok) return [];
    const { items } = (await answer.json()) as { items: { id: string }[] };
    return items.map((item) => item.id);
  }

  /** Deletes a snapshot, once it is taken and the sandboxes that use it are gone. */
  async forget(snapshot: string): Promise<void> {
    const headers = { "OPEN-SANDBOX-API-KEY": key };
    const remove = () => fetch(`${this.url}/v1/snapshots/${snapshot}`, { method: "DELETE", headers });
    await expect.poll(async () => [204, 404].includes((await remove()).status)).toBe(true);
  }

  /** Adds a pool, and waits until this many sandboxes wait in it. */
  async pool(name: string, ready: number, from = image): Promise<void> {
    await this.call("POST", "/pools", {
      name,
      template: {
        spec: {
          containers: [
            {
              image: from,
              command: ["tail", "-f", "/dev/null"],
              env: [{ name: "TOKEN", value: "a-secret-of-the-pool" }],
              resources: { limits: { cpu: "500m", memory: "256Mi" } },
            },
          ],
        },
      },
      capacitySpec: { bufferMin: 1, bufferMax: 1, poolMin: 0, poolMax: 3 },
    });
    await expect.poll(() => this.readyIn(name), { timeout: 60_000 }).toBeGreaterThanOrEqual(ready);
  }

  /** How many sandboxes wait in a pool; nothing once it is gone. */
  async readyIn(pool: string): Promise<number | undefined> {
    const answer = await this.call("GET", `/pools/${pool}`);
    if (answer.status === 404) return undefined;
    return ((await answer.json()) as { status: { available: number } }).status.available;
  }

  /** A sandbox of a pool. */
  async claim(pool: string, metadata = {}): Promise<Sandbox> {
    const response = await this.call("POST", "/sandboxes", {
      extensions: { poolRef: pool },
      timeout: 900,
      metadata: { suite: "browser", ...metadata },
    });
    const { id } = (await response.json()) as { id: string };
    return { id, short: id.slice(0, 8) };
  }

  /** Whether the runtime of the server has pools. */
  async hasPools(): Promise<boolean> {
    const headers = { "OPEN-SANDBOX-API-KEY": key };
    return (await fetch(`${this.url}/v1/pools`, { headers })).status !== 501;
  }

  /** Names of all pools; none on a runtime without them. */
  async pools(): Promise<string[]> {
    const headers = { "OPEN-SANDBOX-API-KEY": key };
    const answer = await fetch(`${this.url}/v1/pools`, { headers });
    if (!answer.ok) return [];
    const { items } = (await answer.json()) as { items: { name: string }[] };
    return items.map((item) => item.name);
  }

  /** Makes a template, and waits until it is made, or has failed; its id. */
  async template(name: string, from: Record<string, unknown> = { image }): Promise<string> {
    const made = await this.call("POST", "/templates", {
      ...from,
      publish: "local",
      env: { TOKEN: "a-secret-of-the-template" },
      resourceLimits: { cpu: "500m", memory: "256Mi" },
      metadata: { name },
    });
    const { templateId } = (await made.json()) as { templateId: string };
    const settled = async () => ["Succeeded", "Failed"].includes((await this.phaseOf(templateId)) ?? "");
    await expect.poll(settled, { timeout: 60_000 }).toBe(true);
    return templateId;
  }

  /** The phase of a template; nothing once it is gone. */
  async phaseOf(template: string): Promise<string | undefined> {
    const answer = await this.call("GET", `/templates/${template}`);
    if (answer.status === 404) return undefined;
    return ((await answer.json()) as { status: { phase: string } }).status.phase;
  }

  /** A sandbox from a template. */
  async createFromTemplate(templateId: string, metadata = {}): Promise<Sandbox> {
    const response = await this.call("POST", "/sandboxes", {
      templateId,
      timeout: 900,
      metadata: { suite: "browser", ...metadata },
    });
    const { id } = (await response.json()) as { id: string };
    return { id, short: id.slice(0, 8) };
  }

  /** Whether the runtime of the server has templates. */
  async hasTemplates(): Promise<boolean> {
    const headers = { "OPEN-SANDBOX-API-KEY": key };
    return (await fetch(`${this.url}/v1/templates`, { headers })).status !== 501;
  }

  /** Ids of all templates; none on a runtime without them. */
  async templates(): Promise<string[]> {
    const headers = { "OPEN-SANDBOX-API-KEY": key };
    const answer = await fetch(`${this.url}/v1/templates?pageSize=200`, { headers });
    if (!answer.ok) return [];
    const { items } = (await answer.json()) as { items: { templateId: string }[] };
    return items.map((item) => item.templateId);
  }

  /** Deletes a template, once it is made and the sandboxes that use it are gone. */
  async forgetTemplate(template: string): Promise<void> {
    const headers = { "OPEN-SANDBOX-API-KEY": key };
    const remove = () => fetch(`${this.url}/v1/templates/${template}`, { method: "DELETE", headers });
    await expect.poll(async () => [204, 404].includes((await remove()).status)).toBe(true);
  }

  async mine(): Promise<string[]> {
    const response = await this.call("GET", "/sandboxes?metadata=suite%3Dbrowser&pageSize=200");
    const { items } = (await response.json()) as { items: { id: string }[] };
    return items.map((item) => item.id);
  }
}

/** Faults of pages whose server is away: of calls, of sockets and of parts that they load. */
export const SERVER_AWAY = /ERR_CONNECTION_(REFUSED|RESET)|WebSocket|Failed to fetch/;

/** Collects faults of a page: errors, failed requests and policy violations. */
function watch(context: BrowserContext, origin: string, faults: string[]): void {
  context.on("request", (request) => {
    const url = new URL(request.url());
    if (!["data:", "blob:"].includes(url.protocol) && url.host !== new URL(origin).host) {
      faults.push(`request to another origin: ${request.url()}`);
    }
  });
  context.on("page", (page) => {
    // Choosers are caught from now on: one that opens while that is being switched on is lost.
    page.on("filechooser", () => {});
  });
  context.on("console", (message) => {
    // A page was left before its socket was open.
    if (message.text().includes("WebSocket is closed before the connection is established")) return;
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

type Fixtures = {
  /** Runtime of the server of a test: `sim` where nothing of the engine is tested. */
  runtime: Runtime;
  api: Api;
  faults: string[];
  sandbox: Sandbox;
};

export const test = base.extend<Fixtures, { servers: Servers }>({
  runtime: ["docker", { option: true }],
  // No worker sees what another one makes.
  servers: [
    async ({}, use, worker) => {
      const servers = new Servers(worker.parallelIndex);
      await use(servers);
      await servers.stop();
    },
    { scope: "worker" },
  ],
  baseURL: async ({ servers, runtime, baseURL }, use) => use(await servers.url(runtime, baseURL!)),
  // Removes what the test created, with the API or with the pages.
  api: [
    async ({ baseURL }, use) => {
      const api = new Api(baseURL!);
      const before = new Set([
        ...(await api.mine()),
        ...(await api.snapshots()),
        ...(await api.pools()),
        ...(await api.templates()),
      ]);
      await use(api);
      for (const name of await api.pools()) {
        if (!before.has(name)) await api.call("DELETE", `/pools/${name}`);
      }
      for (const id of await api.mine()) {
        if (!before.has(id)) await api.remove(id);
      }
      for (const id of await api.snapshots()) {
        if (!before.has(id)) await api.forget(id);
      }
      for (const id of await api.templates()) {
        if (!before.has(id)) await api.forgetTemplate(id);
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

/** Sets the expiry of a sandbox to that many seconds from now. */
export async function renew(api: Api, id: string, seconds: number): Promise<void> {
  const expiresAt = new Date(Date.now() + 1_000 * seconds).toISOString();
  await api.call("POST", `/sandboxes/${id}/renew-expiration`, { expiresAt });
}

/** A label that no earlier run has used: what ended stays listed. */
export function unique(label: string): string {
  return `${label}-${Math.random().toString(36).slice(2, 10)}`;
}

/** Opens a page in a new session. Tests of the login page itself fill in its form. */
export async function logIn(page: Page, next = "/console/sandboxes"): Promise<void> {
  const answer = await page.request.post("/console/login", { form: { key, next }, maxRedirects: 0 });
  expect(answer.status()).toBe(303);
  expect(answer.headers().location).not.toContain("/console/login");
  await page.goto(next);
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

/** Moves the focus with the Tab key, or Shift+Tab, until this has it. */
export async function tabTo(page: Page, target: Locator, press: "Tab" | "Shift+Tab" = "Tab"): Promise<void> {
  for (let step = 0; step < 120; step += 1) {
    if (await target.evaluate((it) => it === document.activeElement)) return;
    await page.keyboard.press(press);
  }
  throw new Error(`${press} does not lead there`);
}
