// An engine that goes away, refuses, or has no port left, under a server of the test's own.

import { once } from "node:events";
import { createServer } from "node:net";
import type { Page } from "@playwright/test";
import { expect, hydrated, image, logIn } from "./console";
import { Engine } from "./engine";
import { HOSTILE, made, withoutScripts } from "./markup";
import { testsWithOwn } from "./own";

let engine: Engine;
/** Ports of the server's sandboxes. */
const ports = { first: 23_100, last: 23_200 };

const test = withoutScripts(
  testsWithOwn(async () => {
    engine = new Engine();
    await engine.start();
    return {
      runtime: "docker",
      more: [
        `[docker]\nnetwork_mode = "bridge"\npublish_host = "127.0.0.1"`,
        `port_range_min = ${ports.first}\nport_range_max = ${ports.last}`,
      ].join("\n"),
      environment: { DOCKER_HOST: engine.address },
      after: () => engine.remove(),
    };
  }),
);

/** Fills the form in and sends it, with keys. */
async function create(page: Page, name: string): Promise<void> {
  await page.getByLabel("Image").fill(image);
  await page.getByLabel("Memory").fill("256Mi");
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.getByLabel("Label name").last().fill("suite");
  await page.getByLabel("Value of suite").fill("browser");
  await page.keyboard.press("Enter");
}

test("an engine that is away is named, and creating goes on when it is back", async ({ page, context, api }) => {
  test.slow();
  await logIn(page, "/console/create");
  await hydrated(page);
  const overview = await context.newPage();
  await overview.goto("/console");
  await hydrated(overview);
  await expect(overview.locator(".readiness")).toContainText("Ready");
  await engine.stop();
  await expect(overview.locator(".readiness")).not.toContainText("Ready");
  await create(page, "without-engine");
  await expect(page.locator("#main")).toContainText(/engine is not running.*Start the engine/);
  await engine.start();
  await expect(overview.locator(".readiness")).toContainText("Ready");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.locator(".page-head")).toContainText("Running");
  expect(await api.mine()).toEqual([page.url().split("/").pop()]);
});

test("no free port is named, with what to do", async ({ page, context }) => {
  const listeners = [];
  try {
    for (let port = ports.first; port <= ports.last; port += 1) {
      const listener = createServer();
      listeners.push(listener);
      const taken = once(listener, "listening").catch((error) => {
        if (error.code !== "EADDRINUSE") throw error;
      });
      listener.listen(port, "127.0.0.1");
      await taken;
    }
    await logIn(page, "/console/create");
    await hydrated(page);
    const list = await context.newPage();
    await list.goto("/console/sandboxes?state=Ended");
    await hydrated(list);
    await create(page, "without-port");
    await expect(page.locator("#main")).toContainText(/no free port in.*delete sandboxes/i);
    await expect(list.getByRole("row").filter({ hasText: "without-port" })).toContainText(/no free port/i);
  } finally {
    for (const listener of listeners) listener.close();
  }
});

test("what an engine says is text", async ({ page, context, api }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  const list = await context.newPage();
  await list.goto("/console/sandboxes?state=Ended");
  await hydrated(list);
  const overview = await context.newPage();
  await overview.goto("/console");
  await hydrated(overview);
  engine.refusal = `no space left on device ${HOSTILE}`;
  await create(page, "refused");
  for (const open of [page, list, overview]) {
    await expect(open.locator("#main")).toContainText(HOSTILE.slice(0, 28));
    expect(await made(open)).toEqual([]);
  }
  await list.getByRole("link", { name: "refused" }).click();
  await expect(list.locator("#main")).toContainText(HOSTILE.slice(0, 28));
  expect(await made(list)).toEqual([]);
  expect(await api.mine()).toEqual([]);
});
