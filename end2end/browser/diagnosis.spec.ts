// The diagnostics tab: what happened, settings, a report for a colleague.

import { readFile } from "node:fs/promises";
import { expect, hydrated, image, logIn, test } from "./console";

const events = ".events > li";

test("a failed command is explained, and the report can be downloaded", async ({ page, api }) => {
  const hostile = "echo '<img src=x onerror=alert(1)>'; exit 3";
  const { id } = await api.create(["sh", "-c", hostile]);
  await logIn(page, `/console/sandboxes/${id}`);
  await hydrated(page);
  await expect(page.locator("main .badge").first()).toContainText("Failed");
  const tabs = page.getByRole("navigation", { name: "Parts of this sandbox" });
  await tabs.getByRole("link", { name: "Diagnostics" }).focus();
  await page.keyboard.press("Enter");
  await expect(page.locator(events).filter({ hasText: "exit code 3" }).first()).toBeVisible();
  await expect(page.locator(events).filter({ hasText: "the image is on the host" })).toBeVisible();
  const settings = page.getByRole("region", { name: "What the runtime reports" });
  await expect(settings).toContainText("Failed");
  expect(await page.locator(".diagnosis img").count()).toBe(0);
  const download = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download with log" }).click();
  const file = await download;
  expect(file.suggestedFilename()).toBe(`${id.slice(0, 8)}.txt`);
  const text = await readFile(await file.path(), "utf8");
  expect(text).toContain("exit code 3");
  expect(text).toContain("<img src=x onerror=alert(1)>");
});

test("what happens later is there after checking again", async ({ page, api }) => {
  const { id } = await api.create(["sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 7"]);
  await logIn(page, `/console/sandboxes/${id}/diagnostics`);
  await hydrated(page);
  await expect(page.locator(events).filter({ hasText: "clients may use the sandbox" })).toBeVisible();
  await expect(page.locator(events).filter({ hasText: "exit code 7" })).toHaveCount(0);
  const tabs = page.getByRole("navigation", { name: "Parts of this sandbox" });
  await tabs.getByRole("link", { name: "Run" }).click();
  await page.getByLabel("Command", { exact: true }).fill("touch /tmp/go");
  await page.keyboard.press("Enter");
  await expect(page.locator("main .badge").first()).toContainText("Failed");
  await tabs.getByRole("link", { name: "Diagnostics" }).click();
  // One button checks, and reads what happened.
  await page.getByRole("link", { name: "Run checks now" }).press("Enter");
  await expect(page.locator(events).filter({ hasText: "exit code 7" }).first()).toBeVisible();
  await expect(page.locator("#main").getByRole("link", { name: /check/i })).toHaveCount(1);
});

test("a sandbox that ended is said to have ended, with what is kept", async ({ page, api }) => {
  const { id } = await api.create();
  await api.remove(id);
  await expect.poll(async () => (await api.call("GET", `/sandboxes/${id}`)).status).toBe(404);
  await logIn(page, `/console/sandboxes/${id}/logs`);
  await hydrated(page);
  const main = page.locator("#main");
  await expect(main).toContainText("Its log is not kept. Kept are how it ended");
  await expect(main).not.toContainText("does not exist");
  await page.goto(`/console/sandboxes/${id}/diagnostics`);
  await hydrated(page);
  await expect(main).toContainText("The engine knows nothing of it any more. Kept are how it ended");
  await page.getByRole("link", { name: "Run checks now" }).press("Enter");
  await expect(main).toContainText("There is nothing left to check.");
  await expect(main).not.toContainText("does not exist");
});

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("events and settings are readable", async ({ page, api }) => {
    const { id } = await api.create();
    await logIn(page, `/console/sandboxes/${id}/diagnostics`);
    await expect(page.getByRole("heading", { name: "What happened" })).toBeVisible();
    await expect(page.locator(events).filter({ hasText: "the request was accepted" })).toBeVisible();
    await page.getByRole("link", { name: "Run checks now" }).click();
    await expect(page.getByRole("list", { name: "Results" })).toContainText("It answers /ping.");
    await expect(page.locator(events).filter({ hasText: "the request was accepted" })).toBeVisible();
  });
});

test("checks run when they are wanted, and the report has them", async ({ page, api, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const { id } = await api.create(["sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 7"]);
  await logIn(page, `/console/sandboxes/${id}/diagnostics`);
  await hydrated(page);
  // Why, and how far the create came, are at the top.
  const state = page.getByRole("region", { name: "State", exact: true });
  await expect(state).toContainText("It runs, and clients can use it.");
  await expect(state.getByRole("list", { name: "Stages" })).toContainText("ready");
  const checks = page.getByRole("region", { name: "Health checks" });
  await expect(checks.getByRole("listitem")).toHaveCount(0);
  await checks.getByRole("link", { name: "Run checks now" }).press("Enter");
  await expect(checks.getByRole("listitem")).toHaveText([/Engine.*good/s, /Container.*good.*ms/s, /execd.*good.*ms/s]);
  await page.getByRole("button", { name: "Copy the report" }).press("Enter");
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain("It answers /ping.");
  await api.run(id, "touch /tmp/go");
  await expect(state).toContainText("exit code 7");
  await checks.getByRole("link", { name: "Run checks now" }).press("Enter");
  await expect(checks.getByRole("listitem")).toHaveText([/Engine.*good/s, /Container.*failed/s, /execd.*skipped/s]);
});

test("the raw data are a tree that folds, without values of variables", async ({ page, api, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const answer = await api.call("POST", "/sandboxes", {
    image: { uri: image },
    entrypoint: ["tail", "-f", "/dev/null"],
    timeout: 900,
    resourceLimits: { cpu: "500m", memory: "256Mi" },
    env: { A_SECRET: "xyzzy-plugh" },
    metadata: { suite: "browser" },
  });
  const { id } = (await answer.json()) as { id: string };
  await logIn(page, `/console/sandboxes/${id}/diagnostics`);
  await hydrated(page);
  const raw = page.getByRole("region", { name: "Raw data" });
  const names = raw.locator("summary").filter({ hasText: "environmentNames" });
  await expect(names).toBeVisible();
  await expect(raw.getByText('"A_SECRET"')).toBeHidden();
  await names.press("Enter");
  await expect(raw.getByText('"A_SECRET"')).toBeVisible();
  await raw.getByRole("button", { name: "Copy the raw data" }).press("Enter");
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  expect((JSON.parse(copied) as { sandbox: { id: string } }).sandbox.id).toBe(id);
  expect(await page.content()).not.toContain("xyzzy-plugh");
});
