// A tab whose session ends reports it, stops reconnecting, and returns to the same page after a new
// sign-in.

import type { BrowserContext, Page } from "@playwright/test";
import { expect, hydrated, key, logIn, test } from "./console";

/** Logs out as if in another tab of the same browser. */
async function logOutElsewhere(context: BrowserContext): Promise<void> {
  const other = await context.newPage();
  await other.goto("/console/sandboxes");
  await other.getByRole("button", { name: "Log out" }).click();
  await expect(other).toHaveURL(/\/console\/login/);
  await other.close();
}

async function signIn(page: Page): Promise<void> {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
}

test.beforeEach(() => test.skip(!key, "this server has no key"));

test("a tab reports that it was signed out, and returns to its page after signing in", async ({ page, context }) => {
  const here = "/console/sandboxes?q=suite%3Dbrowser&state=Running";
  await page.clock.install();
  await logIn(page, here);
  await hydrated(page);
  let sockets = 0;
  page.on("websocket", () => (sockets += 1));
  await logOutElsewhere(context);
  const notice = page.getByRole("alert").filter({ hasText: "You are signed out" });
  await expect(notice).toBeVisible();
  await expect(page.locator(".link-state")).toHaveText("signed out");
  // The tab reconnects once, in case the user has signed in again. A tab that kept trying would
  // connect again after its longest pause.
  await page.clock.fastForward("01:00");
  await page.evaluate(() => undefined);
  expect(sockets).toBe(1);

  await notice.getByRole("link", { name: "Sign in" }).click();
  await expect(page).toHaveURL(/\/console\/login\?next=%2Fconsole%2Fsandboxes/);
  await signIn(page);
  await expect(page).toHaveURL(/\/console\/sandboxes\?q=suite(%3D|=)browser&state=Running$/);
  await hydrated(page);
});

test("a tab continues with the session that replaced its own", async ({ page, context }) => {
  await logIn(page);
  await hydrated(page);
  const again = page.waitForEvent("websocket");
  const other = await context.newPage();
  // A new session of the same browser; the session of the open connection has ended.
  await logIn(other);
  await again;
  await hydrated(page);
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("a terminal reports that it was signed out, and reattaches to its shell", async ({
  page,
  context,
  sandbox,
}) => {
  const here = `/console/sandboxes/${sandbox.id}/terminal`;
  await logIn(page, here);
  const bar = page.locator(".terminal-bar");
  await expect(bar).toContainText("Connected");
  const shell = () => page.evaluate((id) => sessionStorage.getItem(`osb.pty.${id}`), sandbox.id);
  const before = await shell();
  expect(before).not.toBeNull();
  await logOutElsewhere(context);
  await expect(bar).toContainText("You are signed out.");
  await bar.getByRole("link", { name: "Sign in" }).click();
  await signIn(page);
  await expect(page).toHaveURL(new RegExp(`${here}$`));
  await expect(bar).toContainText("Connected");
  expect(await shell()).toBe(before);
});

test("a sandbox page without a session offers the sign-in", async ({
  page,
  context,
  sandbox,
  faults,
}) => {
  await logIn(page, `/console/sandboxes?q=${sandbox.id}`);
  await hydrated(page);
  await logOutElsewhere(context);
  await page.getByRole("link", { name: sandbox.short, exact: true }).click();
  const empty = page.locator(".empty");
  await expect(empty).toContainText("You are signed out");
  await empty.getByRole("link", { name: "Sign in" }).click();
  await signIn(page);
  await expect(page).toHaveURL(new RegExp(`/console/sandboxes/${sandbox.id}$`));
  await expect(page.locator(".page-head")).toContainText("Running");
  // The browser logs the refused requests.
  for (const fault of faults.splice(0)) expect(fault).toContain("401");
});
