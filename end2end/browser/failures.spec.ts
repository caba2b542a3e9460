// Why a create failed: the list and the sandbox's page name the reason and what to do, in open pages.

import type { Page } from "@playwright/test";
import { type Api, expect, hydrated, image, key, logIn, tabTo, test } from "./console";

/** Watches the list and, once there is one, the page of a sandbox; neither is ever reloaded. */
async function expectReason(
  page: Page,
  name: string,
  inList: RegExp,
  reason: RegExp,
  fix: RegExp,
): Promise<void> {
  const row = page.getByRole("row").filter({ hasText: name });
  await expect(row.first()).toContainText(inList);
  await row.first().getByRole("link", { name }).focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(name);
  await expect(page.locator("#main")).toContainText(reason);
  await expect(page.locator("#main")).toContainText(fix);
  const mark = await page.evaluate(() => (window as unknown as { mark?: string }).mark);
  expect(mark).toBe("not reloaded");
}

/** Opens the list of what failed or ended. */
async function watch(page: Page, query: string): Promise<void> {
  await logIn(page, "/console/sandboxes");
  await page.goto(`/console/sandboxes?${query}`);
  await hydrated(page);
  await page.evaluate(() => Object.assign(window, { mark: "not reloaded" }));
}

/** Asks for a sandbox; the answer may be a refusal. */
async function ask(api: Api, name: string, more: object): Promise<void> {
  await fetch(`${api.url}/v1/sandboxes`, {
    method: "POST",
    headers: { "OPEN-SANDBOX-API-KEY": key, "Content-Type": "application/json" },
    body: JSON.stringify({
      image: { uri: image },
      entrypoint: ["tail", "-f", "/dev/null"],
      timeout: 600,
      resourceLimits: { cpu: "500m", memory: "256Mi" },
      metadata: { suite: "browser", name },
      ...more,
    }),
  });
}

test("an image that cannot be pulled", async ({ page, api }) => {
  await watch(page, "state=Ended&q=no-image");
  await ask(api, "no-image", { image: { uri: "no-such-registry.invalid/no/such:image" } });
  const reason = /no-such-registry\.invalid\/no\/such:image cannot be pulled/;
  await expectReason(page, "no-image", reason, reason, /Check the registry's name/);
});

test("an image that cannot be pulled, asked for and read about with keys alone", async ({ page }) => {
  await logIn(page, "/console/sandboxes");
  await hydrated(page);
  await page.keyboard.press("c");
  await expect(page).toHaveURL(/\/console\/create$/);
  await tabTo(page, page.getByLabel("Name", { exact: true }));
  await page.keyboard.type("no-image-by-keys");
  await tabTo(page, page.getByLabel("Image"));
  await page.keyboard.type("no-such-registry.invalid/no/such:image");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  const main = page.locator("#main");
  const reason = /no-such-registry\.invalid\/no\/such:image cannot be pulled/;
  await expect(main).toContainText("This sandbox could not be created.");
  await expect(main).toContainText(reason);
  await expect(main).toContainText(/Check the registry's name/);
  const tabs = page.getByRole("navigation", { name: "Parts of this sandbox" });
  await tabTo(page, tabs.getByRole("link", { name: "Diagnostics" }));
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/diagnostics$/);
  await expect(main).toContainText(reason);
  await page.keyboard.press("l");
  await expect(page).toHaveURL(/\/logs$/);
  await expect(main).toContainText("Its log is not kept.");
  // From the list of what ended, too.
  await page.keyboard.press("/");
  await expect(page.getByRole("searchbox")).toBeFocused();
  await page.keyboard.type("no-image-by-keys");
  await tabTo(page, page.getByRole("link", { name: /^Ended \d/ }));
  await page.keyboard.press("Enter");
  await expect(page.getByRole("row").filter({ hasText: "no-image-by-keys" }).first()).toContainText(reason);
});

test("a program that needs more memory than it may have", async ({ page, api }) => {
  await watch(page, "q=no-memory");
  await ask(api, "no-memory", {
    entrypoint: ["python3", "-c", "a = bytearray(600 << 20)"],
    resourceLimits: { cpu: "500m", memory: "64Mi" },
  });
  await expectReason(page, "no-memory", /Failed· out of memory/, /memory limit was reached/, /Raise `resourceLimits\.memory`/);
});

test("more processors than the host has, in the form that asked for them", async ({ page }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  await page.getByLabel("Image").fill(image);
  await page.getByLabel("CPU").fill("999");
  await page.getByLabel("Name", { exact: true }).fill("too-large");
  await page.keyboard.press("Enter");
  await expect(page.locator("#main")).toContainText(/Range of CPUs is from .* Ask for less in `resourceLimits`/);
});

test("a command that the image does not have", async ({ page, api }) => {
  await watch(page, "q=no-command");
  await ask(api, "no-command", { entrypoint: ["no-such-command", "x"] });
  const reason = /the command was not found in the image/;
  await expectReason(page, "no-command", /Failed· /, reason, /Check `entrypoint` and the PATH/);
});
