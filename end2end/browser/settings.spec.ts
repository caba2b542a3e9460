// Settings & health: how the server stands and how it is configured.

import { expect, hydrated, key, logIn, test } from "./console";

const path = "/console/settings";

test("health, versions and the configuration are shown without secrets", async ({ page }) => {
  await logIn(page, path);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Settings & health");
  await hydrated(page);
  const health = page.getByRole("region", { name: "Health" });
  await expect(health).toContainText("Sandboxes can be created.");
  await expect(health).toContainText("It takes writes.");
  await expect(health).toContainText(/[\d.]+ GiB of [\d.]+ GiB are free/);
  await expect(health).toContainText("The clocks of the server and the engine agree.");
  const config = page.getByRole("region", { name: "Configuration" });
  await expect(config).toContainText("server.port");
  await expect(config).toContainText(/line \d+/);
  if (key !== "") await expect(config).not.toContainText(key);
  await config.locator("summary").first().focus();
  await page.keyboard.press("Enter");
  await expect(config.locator("details").first()).not.toHaveAttribute("open", "");
});

test("the store is checked on request, by keyboard", async ({ page }) => {
  await logIn(page, path);
  await hydrated(page);
  const store = page.getByRole("region", { name: "Store and host" });
  await expect(store).not.toContainText("No damage was found.");
  await store.getByRole("button", { name: "Look for damage" }).focus();
  await page.keyboard.press("Enter");
  await expect(store).toContainText("No damage was found.");
  await expect(page).toHaveURL(/check=store/);
});

test("a support bundle is downloaded", async ({ page }) => {
  test.setTimeout(90_000);
  await logIn(page, path);
  await hydrated(page);
  const [file] = await Promise.all([
    page.waitForEvent("download", { timeout: 80_000 }),
    page.getByRole("link", { name: "Support bundle" }).click(),
  ]);
  expect(file.suggestedFilename()).toMatch(/^opensandbox-support-.*\.tar\.gz$/);
});

for (const width of [360, 768, 1440]) {
  test(`the page fits into ${width} px`, async ({ page }) => {
    await page.setViewportSize({ width, height: 900 });
    await logIn(page, `${path}?check=store`);
    await hydrated(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide).toBeLessThanOrEqual(width);
  });
}

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("the page is read and the store checked", async ({ page }) => {
    await logIn(page, path);
    await expect(page.getByRole("region", { name: "Health" })).toContainText("Sandboxes can be created.");
    await page.getByRole("button", { name: "Look for damage" }).click();
    await expect(page.locator("#main")).toContainText("No damage was found.");
  });
});

test("the free space of the disk stands once", async ({ page }) => {
  await logIn(page, path);
  await hydrated(page);
  await expect(page.getByRole("region", { name: "Health" })).toContainText("free for images and sandboxes");
  await expect(page.getByRole("region", { name: "Store and host" })).not.toContainText(/free|disk/i);
});

test("the page about the API has the theme of the console", async ({ page }) => {
  await logIn(page, path);
  await hydrated(page);
  const theme = page.getByRole("button", { name: /^Theme:/ });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const root = page.locator("html");
  for (const [chosen, system, isDark] of [
    ["light", "dark", false],
    ["dark", "light", true],
    ["system", "dark", true],
    ["light", "light", false],
  ] as const) {
    await page.emulateMedia({ colorScheme: system });
    await page.goto(path);
    await hydrated(page);
    for (let step = 0; step < 3 && (await theme.getAttribute("aria-label")) !== `Theme: ${chosen}`; step += 1) {
      await theme.press("Enter");
    }
    await expect(theme).toHaveAccessibleName(`Theme: ${chosen}`);
    await page.goto("/docs/");
    await expect(page.locator(".swagger-ui .info").first()).toBeVisible();
    if (isDark) await expect(root).toHaveClass(/dark-mode/);
    else await expect(root).not.toHaveClass(/dark-mode/);
    expect([chosen, system, (await ground()) === "rgb(28, 32, 34)"]).toEqual([chosen, system, isDark]);
  }
});
