// Copying: also over plain HTTP, where pages have no clipboard of their own, and with a word when it
// fails.

import { expect, hydrated, key, logIn, test } from "./console";

test("text is copied over plain HTTP, too", async ({ playwright, baseURL, sandbox, launchOptions }) => {
  const args = [...(launchOptions.args ?? []), "--host-resolver-rules=MAP console.test 127.0.0.1"];
  const browser = await playwright.chromium.launch({ ...launchOptions, args });
  try {
    const page = await browser.newPage();
    const origin = `http://console.test:${new URL(baseURL!).port}`;
    await page.goto(`${origin}/console/login`);
    await page.getByLabel("API key").fill(key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.goto(`${origin}/console/sandboxes/${sandbox.id}`);
    await hydrated(page);
    expect(await page.evaluate(() => window.isSecureContext)).toBe(false);
    // It says so for a moment only.
    await Promise.all([
      expect(page.getByRole("button", { name: "Copied" })).toBeVisible(),
      page.getByRole("button", { name: "Copy the id" }).first().click(),
    ]);
    await page.goto(`${origin}/console/sandboxes`);
    await hydrated(page);
    const field = page.getByRole("searchbox");
    await field.focus();
    await page.keyboard.press("Control+v");
    await expect(field).toHaveValue(sandbox.id);
  } finally {
    await browser.close();
  }
});

test("a refused copy is said, and nothing claims to be copied", async ({ page, sandbox }) => {
  await page.addInitScript(() => {
    navigator.clipboard.writeText = () => Promise.reject(new DOMException("no", "NotAllowedError"));
  });
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  await page.getByRole("button", { name: "Copy the id" }).first().click();
  await expect(page.getByText("Not copied: select it and press Ctrl+C")).toBeVisible();
  await expect(page.getByRole("button", { name: "Copied" })).toHaveCount(0);
});
