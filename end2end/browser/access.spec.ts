// Users, API keys and sessions: who may use the server.

import type { Browser, Page } from "@playwright/test";
import { expect, hydrated, key, logIn, tabTo, test } from "./console";

const path = "/console/access";
const password = "a long password of a test";

test.skip(key === "", "the first account of a server without a key would close it");

// Nothing of the engine is tested.
test.use({ runtime: "sim" });

/** Calls the API with a key. */
async function status(url: string, secret: string, method = "GET", body?: unknown): Promise<number> {
  const answer = await fetch(`${url}/v1/sandboxes`, {
    method,
    headers: { "OPEN-SANDBOX-API-KEY": secret, "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return answer.status;
}

/** Signs in as a user in a browser of its own. */
async function signedIn(browser: Browser, baseURL: string, user: string): Promise<Page> {
  const context = await browser.newContext({ baseURL });
  const page = await context.newPage();
  await page.goto(`/console/login?next=${path}`);
  await page.getByLabel("User").fill(user);
  await page.getByLabel(/password/i).fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Access");
  return page;
}

async function open(page: Page): Promise<void> {
  await logIn(page, path);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Access");
  await hydrated(page);
}

test("a scoped key is made by keyboard, refuses what it may not do, and is revoked", async ({ page, browser, baseURL }) => {
  await open(page);
  const name = `key ${Date.now()}`;
  const keys = page.getByRole("region", { name: "API keys" });
  await keys.locator("summary", { hasText: "Make a key" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.type(name);
  await page.keyboard.press("Enter");
  const issued = page.getByRole("region", { name: `The API key ${name} is made` });
  await expect(issued).toBeFocused();
  await expect(issued).toContainText("it is not shown again");
  const secret = (await issued.locator("code").first().textContent())!;
  expect(await status(baseURL!, secret)).toBe(200);
  expect(await status(baseURL!, secret, "POST", {})).toBe(403);
  const other = await (await browser.newContext({ baseURL: baseURL! })).newPage();
  await other.goto("/console/login?next=/console/create");
  await tabTo(other, other.locator("#main, body").getByLabel(/API key/).first());
  await other.keyboard.type(secret);
  await other.keyboard.press("Enter");
  await hydrated(other);
  await expect(other.locator("#main")).toContainText("Your role is read_only: creating needs the role operator.");
  await other.context().close();
  const row = keys.getByRole("row", { name });
  await expect(row).toContainText("read_only");
  await page.reload();
  await hydrated(page);
  await expect(page.locator("body")).not.toContainText(secret);
  await row.locator("summary").focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await expect(row.getByRole("button", { name: "Revoke key" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.locator(".toasts")).toContainText(`${name} is revoked`);
  await expect(keys.locator(".over summary").first()).toContainText("Revoked and expired");
  expect(await status(baseURL!, secret)).toBe(401);
});

test("a key is replaced by one with the same role and lifetime", async ({ page, baseURL }) => {
  await open(page);
  const name = `rotated ${Date.now()}`;
  const keys = page.getByRole("region", { name: "API keys" });
  await keys.locator("summary", { hasText: "Make a key" }).click();
  await keys.getByLabel("Name").fill(name);
  await keys.getByLabel("Role").selectOption("operator");
  await keys.getByLabel("Expires after").selectOption("90");
  await keys.getByRole("button", { name: "Make the key" }).click();
  const issued = page.getByRole("region", { name: `The API key ${name} is made` });
  const first = (await issued.locator("code").first().textContent())!;
  await keys.getByRole("link", { name: `Replace ${name}` }).focus();
  await page.keyboard.press("Enter");
  await expect(keys.getByLabel("Name")).toHaveValue(name);
  await expect(keys.getByLabel("Role")).toHaveValue("operator");
  await expect(keys.getByLabel("Expires after")).toHaveValue("90");
  await expect(keys).toContainText("which works until you revoke it");
  await keys.getByRole("button", { name: "Make the key" }).click();
  await expect(keys.getByRole("row", { name })).toHaveCount(2);
  const second = (await issued.locator("code").first().textContent())!;
  expect(second).not.toBe(first);
  // Both work until the old one is revoked: a create without a body is invalid, not forbidden.
  for (const secret of [first, second]) expect(await status(baseURL!, secret, "POST", {})).toBe(422);
  for (const row of await keys.getByRole("row", { name }).all()) {
    await row.locator("summary").click();
    await row.getByRole("button", { name: "Revoke key" }).click();
    break;
  }
  await expect(keys.getByRole("row", { name }).filter({ hasText: "until" })).toHaveCount(1);
});

test("a user is added after a mistake, limited, signed out and deleted", async ({ page, browser, baseURL }) => {
  await open(page);
  const name = `zoe-${Date.now()}`;
  const users = page.getByRole("region", { name: "Users" });
  await users.locator("summary", { hasText: "Add a user" }).click();
  const form = users.locator("form").first();
  await form.getByLabel("Name").fill(name);
  await form.getByLabel("Password").fill("short");
  await form.getByRole("button", { name: "Add the user" }).click();
  await expect(form.locator("#user-password-problem")).toContainText("at least 12 characters");
  await expect(form.getByLabel("Name")).toHaveValue(name);
  await form.getByLabel("Password").fill(password);
  await form.getByRole("button", { name: "Add the user" }).click();
  const row = users.getByRole("row", { name });
  await expect(row).toContainText("May sign in");

  const other = await signedIn(browser, baseURL!, name);
  await expect(other.locator("#main")).toContainText("Your role is read_only: users and API keys are for the role service_admin.");
  await expect(other.getByRole("region", { name: "Users" })).toHaveCount(0);
  await expect(other.getByRole("region", { name: "Your open sessions" })).toContainText("This browser");

  await page.reload();
  await hydrated(page);
  const session = page.getByRole("region", { name: "Open sessions" }).getByRole("row", { name });
  await session.locator("summary").click();
  await session.getByRole("button", { name: "End session" }).click();
  await expect(session).toHaveCount(0);
  await expect(other.getByRole("alert").first()).toContainText("signed out");
  await other.context().close();

  await row.locator("summary", { hasText: "Change" }).click();
  await row.getByLabel("Role").selectOption("operator");
  await row.getByLabel(/May not sign in/).check();
  await row.getByRole("button", { name: "Save" }).click();
  await expect(row).toContainText("Disabled");
  await expect(row).toContainText("operator");
  await row.locator("summary", { hasText: "Delete" }).click();
  await page.keyboard.press("Escape");
  await expect(row.getByRole("button", { name: "Delete user" })).toBeHidden();
  await row.locator("summary", { hasText: "Delete" }).click();
  await row.getByRole("button", { name: "Delete user" }).click();
  await expect(row).toHaveCount(0);
});

for (const width of [360, 768, 1440]) {
  test(`the page fits into ${width} px`, async ({ page }) => {
    await page.setViewportSize({ width, height: 900 });
    await open(page);
    for (const summary of await page.locator("details.add > summary").all()) await summary.click();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide).toBeLessThanOrEqual(width);
  });
}

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("a key is made, shown once and revoked", async ({ page, baseURL }) => {
    await logIn(page, path);
    const name = `plain ${Date.now()}`;
    await page.locator("summary", { hasText: "Make a key" }).click();
    await page.locator("#key-name").fill(name);
    await page.getByRole("button", { name: "Make the key" }).click();
    const issued = page.getByRole("region", { name: `The API key ${name} is made` });
    const secret = (await issued.locator("code").first().textContent())!;
    expect(await status(baseURL!, secret)).toBe(200);
    await page.goto(path);
    await expect(page.locator("body")).not.toContainText(secret);
    const row = page.getByRole("row", { name });
    await row.locator("summary").click();
    await row.getByRole("button", { name: "Revoke key" }).click();
    await expect(page.locator(".toasts")).toContainText("The API key is revoked");
    expect(await status(baseURL!, secret)).toBe(401);
  });
});
