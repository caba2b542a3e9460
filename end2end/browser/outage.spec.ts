// Every page loses the server while it is open: it says so, keeps what was typed, and goes on.

import type { Page } from "@playwright/test";
import { SERVER_AWAY, expect, hydrated, image, key, logIn, row, screen, test as base, type } from "./console";
import { AWAY, outages } from "./outages";

type Away = { begin(): Promise<void>; end(): Promise<void> };

const test = base.extend<{ open: (path: string) => Promise<Away> }>({
  // Opens a page that can lose the server. It must never be reloaded.
  open: async ({ page, faults }, use) => {
    let opened = false;
    await use(async (path) => {
      const server = await outages(page);
      await logIn(page, path);
      await hydrated(page);
      await page.evaluate(() => Object.assign(window, { mark: "not reloaded" }));
      opened = true;
      return {
        async begin() {
          await server.begin();
          await expect(page.locator(".link-state")).toHaveText(/Offline · last update .* ago · Retry/);
        },
        async end() {
          await server.end();
          await hydrated(page);
        },
      };
    });
    if (opened) {
      await expect(page.locator("body")).not.toContainText("TypeError");
      await expect(page.getByText(AWAY)).toHaveCount(0);
      const mark = await page.evaluate(() => (window as unknown as { mark?: string }).mark);
      expect(mark).toBe("not reloaded");
    }
    // The browser logs each refused request.
    await page.close();
    for (const fault of faults.splice(0)) expect(fault).toMatch(SERVER_AWAY);
  },
});

test.setTimeout(90_000 + 5 * Number(process.env.OSB_OUTAGE_MS ?? 0));

const away = (page: Page) => page.getByRole("alert").filter({ hasText: AWAY }).first();
const toast = (page: Page) => page.locator(".toasts").filter({ hasText: "The server cannot be reached." });

test("the overview counts what happened meanwhile", async ({ page, api, open }) => {
  const server = await open("/console");
  const running = page.getByRole("link", { name: /Running/ }).locator(".counter-number");
  const number = async () => Number(await running.textContent());
  const before = await number();
  await server.begin();
  await page.getByRole("button", { name: "Run a test sandbox" }).click();
  await expect(page.locator("#main")).toContainText("The server cannot be reached.");
  const { id } = await api.create();
  await expect
    .poll(async () => {
      const answer = await api.call("GET", `/sandboxes/${id}`);
      return ((await answer.json()) as { status: { state: string } }).status.state;
    })
    .toBe("Running");
  expect(await number()).toBe(before);
  await server.end();
  await expect.poll(number).toBeGreaterThan(before);
});

test("the list shows what happened meanwhile, and an action that failed says so", async ({ page, api, sandbox, open }) => {
  const server = await open("/console/sandboxes");
  await expect(row(page, sandbox)).toContainText("Running");
  await server.begin();
  await row(page, sandbox).getByRole("button", { name: /^Pause/ }).click();
  await expect(toast(page)).toBeVisible();
  const later = await api.create(undefined, { name: "made-meanwhile" });
  await expect(row(page, later)).toHaveCount(0);
  await server.end();
  await expect(row(page, later)).toContainText("made-meanwhile");
  await row(page, sandbox).getByRole("button", { name: /^Pause/ }).click();
  await expect(row(page, sandbox)).toContainText("Paused");
});

test("the create form keeps what was typed", async ({ page, open }) => {
  const server = await open("/console/create");
  await page.getByLabel("Image").fill(image);
  await page.getByLabel("Label name").last().fill("suite");
  await server.begin();
  await page.getByLabel("Value of suite").fill("browser");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page.locator("#main")).toContainText("The server cannot be reached.");
  await expect(page.getByLabel("Image")).toHaveValue(image);
  await server.end();
  await expect(page.getByLabel("Value of suite")).toHaveValue("browser");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.locator(".page-head")).toContainText("Running");
});

test("the audit trail and the settings are read again", async ({ page, sandbox, open }) => {
  const server = await open(`/console/events?sandbox=${sandbox.id}`);
  await server.begin();
  await page.getByRole("link", { name: "Refresh" }).click();
  await expect(away(page)).toBeVisible();
  await server.end();
  await expect(page.locator(".events tbody tr").first()).toContainText("sandbox.create");

  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: /Settings/ }).click();
  const store = page.getByRole("region", { name: "Store and host" });
  await expect(store).toBeVisible();
  await server.begin();
  await store.getByRole("button", { name: "Look for damage" }).click();
  await expect(away(page)).toBeVisible();
  await server.end();
  await expect(store).toContainText("No damage was found.");
  await server.begin();
  await page.getByRole("link", { name: "Events" }).click();
  await expect(away(page)).toBeVisible();
  await server.end();
  await page.getByLabel("Sandbox (id)").fill(sandbox.id);
  await server.begin();
  await page.getByRole("button", { name: "Filter" }).click();
  await expect(away(page)).toBeVisible();
  await server.end();
  await expect(page).toHaveURL(new RegExp(`sandbox=${sandbox.id}`));
  await expect(page.locator(".events tbody tr")).toHaveCount(1);
});

test("the list of snapshots is read again, and one that could not be taken is taken later", async ({ page, sandbox, open }) => {
  const server = await open(`/console/sandboxes/${sandbox.id}`);
  await server.begin();
  await page.keyboard.press("s");
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByRole("textbox")).toBeFocused();
  await page.keyboard.type("kept");
  await page.keyboard.press("Enter");
  await expect(dialog.getByRole("alert")).toContainText("The server cannot be reached.");
  await server.end();
  await page.keyboard.press("Enter");
  await expect(dialog).toBeHidden();
  const own = page.getByRole("region", { name: "Snapshots" }).getByRole("listitem");
  await expect(own.filter({ hasText: "kept" })).toContainText("Ready");
  await expect(own).toHaveCount(1);

  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Snapshots" }).click();
  await expect(page.getByRole("row").filter({ hasText: "kept" })).toContainText("Ready");
  await server.begin();
  await page.getByRole("link", { name: "Refresh" }).click();
  await expect(away(page)).toBeVisible();
  await server.end();
  await expect(page.getByRole("row").filter({ hasText: "kept" })).toContainText("Ready");
});

test("a key that could not be made is made later, with what was typed", async ({ page, api, open }) => {
  base.skip(key === "", "the first account of a server without a key would close it");
  const server = await open("/console/access");
  const name = `outage ${Date.now()}`;
  const keys = page.getByRole("region", { name: "API keys" });
  await keys.locator("summary", { hasText: "Make a key" }).click();
  await page.locator("#key-name").fill(name);
  await server.begin();
  await page.getByRole("button", { name: "Make the key" }).click();
  await expect(page.locator("body")).toContainText("The server cannot be reached.");
  await expect(page.locator("#key-name")).toHaveValue(name);
  await server.end();
  await page.getByRole("button", { name: "Make the key" }).click();
  await expect(page.getByRole("region", { name: `The API key ${name} is made` })).toBeVisible();
  const { items } = (await (await api.call("GET", "/api-keys")).json()) as { items: { id: string; name: string }[] };
  const made = items.filter((it) => it.name === name);
  expect(made).toHaveLength(1);
  await api.call("DELETE", `/api-keys/${made[0].id}`);
});

test("a sandbox's page goes on, and an action that failed says so", async ({ page, api, sandbox, open }) => {
  const server = await open(`/console/sandboxes/${sandbox.id}`);
  await server.begin();
  await page.getByRole("group", { name: "Actions" }).getByRole("button", { name: "Pause" }).click();
  await expect(toast(page)).toBeVisible();
  await expect(page.locator(".page-head")).toContainText("Running");
  await api.call("POST", `/sandboxes/${sandbox.id}/pause`);
  await server.end();
  await expect(page.locator(".page-head")).toContainText("Paused");
  await page.getByRole("group", { name: "Actions" }).getByRole("button", { name: "Resume" }).click();
  await expect(page.locator(".page-head")).toContainText("Running");
});

test("a shell and its text survive", async ({ page, api, sandbox, open }) => {
  const server = await open(`/console/sandboxes/${sandbox.id}/terminal`);
  const bar = page.locator(".terminal-bar");
  await expect(bar).toContainText("Connected");
  await type(page, "word=kept; echo before $((40+2)); (while [ ! -e /tmp/go ]; do sleep 0.1; done; echo mean''while) &");
  await expect.poll(() => screen(page)).toContain("before 42");
  await server.begin();
  await expect(bar).toContainText("Connection lost. Reconnecting …");
  expect(await screen(page)).toContain("before 42");
  await api.run(sandbox.id, "touch /tmp/go");
  await server.end();
  await expect(bar).toContainText("Connected");
  await expect.poll(() => screen(page)).toContain("meanwhile");
  await type(page, "echo the word is $word");
  await expect.poll(() => screen(page)).toContain("the word is kept");
  expect((await screen(page)).match(/^before 42/gm)).toHaveLength(1);
});

test("a shell in the dock survives on another page", async ({ page, sandbox, open }) => {
  const server = await open(`/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await type(page, "word=kept; echo before $((40+2))");
  await expect.poll(() => screen(page)).toContain("before 42");
  await page.getByRole("button", { name: "Keep in the dock" }).click();
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Sandboxes" }).click();
  const dock = page.getByRole("region", { name: "Dock" });
  await expect(dock.locator(".terminal-state")).toContainText("Connected");
  await server.begin();
  await expect(dock.locator(".terminal-state")).toContainText("Connection lost. Reconnecting …");
  await expect.poll(() => screen(page)).toContain("before 42");
  await server.end();
  await expect(dock.locator(".terminal-state")).toContainText("Connected");
  await dock.locator(".xterm").click();
  await page.keyboard.type("echo the word is $word");
  await page.keyboard.press("Enter");
  await expect.poll(() => screen(page)).toContain("the word is kept");
});

test("an unsaved edit survives, and is saved later", async ({ page, sandbox, open }) => {
  const server = await open(`/console/sandboxes/${sandbox.id}/files?path=/etc/motd`);
  await page.getByRole("button", { name: "Edit" }).click();
  const area = page.getByRole("textbox", { name: "Text of motd" });
  await area.fill("typed before\n");
  await server.begin();
  await area.press("Control+End");
  await page.keyboard.type("typed meanwhile\n");
  await page.getByRole("button", { name: "Review and save" }).click();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(toast(page)).toBeVisible();
  await server.end();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.locator(".file-text > pre").last()).toHaveText("typed before\ntyped meanwhile\n");
});

test("a command goes on meanwhile, and its end is listed", async ({ page, api, sandbox, open }) => {
  const server = await open(`/console/sandboxes/${sandbox.id}/run`);
  const command = page.getByLabel("Command", { exact: true });
  await expect(page.getByRole("button", { name: "Run", exact: true })).toBeEnabled();
  await command.fill("echo begun; while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 5");
  await command.press("Enter");
  await expect(page.getByRole("log", { name: "Output" })).toContainText("begun");
  await server.begin();
  await expect(page.getByRole("region", { name: "Result" })).toContainText("The command goes on");
  await expect(page.getByRole("log", { name: "Output" })).toContainText("begun");
  await api.run(sandbox.id, "touch /tmp/go");
  await server.end();
  await expect(page.locator(".command-list > li").filter({ hasText: "echo begun" })).toContainText("Exit 5");
});

test("no line of a log is missing or there twice", async ({ page, api, open }) => {
  const { id } = await api.create(["bash", "-c", "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.1; done"]);
  const server = await open(`/console/sandboxes/${id}/logs`);
  const lines = page.getByRole("region", { name: "Output" }).locator(".log-line");
  const last = async () => Number(/tick (\d+)/.exec(await lines.last().innerText())?.[1]);
  await expect(lines.last()).toContainText("tick");
  await server.begin();
  const seen = await last();
  const log = async () => await (await fetch(`${api.url}/v1/sandboxes/${id}/diagnostics/logs`, { headers: { "OPEN-SANDBOX-API-KEY": key } })).text();
  await expect.poll(log).toContain(`tick ${seen + 10}`);
  await server.end();
  await expect.poll(last).toBeGreaterThan(seen + 10);
  const numbers = (await lines.allInnerTexts()).map((text) => Number(/tick (\d+)/.exec(text)![1]));
  expect(numbers).toEqual(numbers.map((_, at) => numbers[0] + at));
});

test("a part of the console that was opened meanwhile appears by itself", async ({ page, sandbox, open }) => {
  const server = await open(`/console/sandboxes/${sandbox.id}`);
  const file = /\/pkg\/split_diagnosis\.wasm$/;
  let requests = 0;
  await page.route(file, (route) => {
    requests += 1;
    return route.abort("connectionrefused");
  });
  await server.begin();
  await page.getByRole("navigation", { name: "Parts of this sandbox" }).getByRole("link", { name: "Diagnostics" }).click();
  const notice = page.getByRole("alert").filter({ hasText: "could not be loaded" });
  await expect(notice).toBeVisible();
  // It waits for the connection, and asks for nothing meanwhile.
  const asked = requests;
  expect(asked).toBeLessThanOrEqual(3);
  await page.waitForTimeout(3_000);
  await expect(notice).toBeVisible();
  expect(requests).toBe(asked);
  await page.unroute(file);
  await server.end();
  await expect(page.locator(".events > li").filter({ hasText: "the request was accepted" })).toBeVisible();
  await expect(notice).toHaveCount(0);
});

test("charts go on", async ({ page, api, open }) => {
  const { id } = await api.create(["bash", "-c", "while :; do :; done"]);
  const server = await open(`/console/sandboxes/${id}/metrics`);
  const path = page.locator(".chart-line").first();
  await expect(path).toBeAttached();
  await server.begin();
  const before = await path.getAttribute("d");
  await server.end();
  await expect.poll(() => path.getAttribute("d")).not.toBe(before);
});

test("ports and diagnostics are read again", async ({ page, sandbox, open }) => {
  const server = await open(`/console/sandboxes/${sandbox.id}/preview`);
  await expect(page.locator("#main")).toContainText("No program of this sandbox listens");
  await server.begin();
  await page.getByRole("button", { name: "Check again" }).click();
  await expect(page.locator("#main")).toContainText(/The server cannot be reached\./);
  await server.end();
  await expect(page.locator("#main")).toContainText("No program of this sandbox listens");

  await page.getByRole("navigation", { name: "Parts of this sandbox" }).getByRole("link", { name: "Diagnostics" }).click();
  const event = page.locator(".events > li").filter({ hasText: "the request was accepted" });
  await expect(event).toBeVisible();
  await server.begin();
  await page.getByRole("link", { name: "Run checks now" }).click();
  await expect(away(page)).toBeVisible();
  await server.end();
  await expect(event).toBeVisible();
});
