// The diagnostics tab: what happened, settings, a report for a colleague.

import { readFile } from "node:fs/promises";
import { expect, hydrated, logIn, test } from "./console";

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
  await page.getByRole("link", { name: "Check again" }).click();
  await expect(page.locator(events).filter({ hasText: "exit code 7" }).first()).toBeVisible();
});

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("events and settings are readable", async ({ page, api }) => {
    const { id } = await api.create();
    await logIn(page, `/console/sandboxes/${id}/diagnostics`);
    await expect(page.getByRole("heading", { name: "What happened" })).toBeVisible();
    await expect(page.locator(events).filter({ hasText: "the request was accepted" })).toBeVisible();
    await page.getByRole("link", { name: "Check again" }).click();
    await expect(page.locator(events).filter({ hasText: "the request was accepted" })).toBeVisible();
  });
});
