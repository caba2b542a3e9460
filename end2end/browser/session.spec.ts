// A tab that is open when its session ends: it says so, stops to connect, and comes back to the same
// page after a new sign-in.

import type { BrowserContext, Page } from "@playwright/test";
import { expect, hydrated, key, logIn, test } from "./console";

/** Logs out as another tab of the same browser does. */
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

test("a tab learns that it was signed out, and leads back to its page", async ({ page, context }) => {
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
  // One attempt was made, in case somebody had signed in again. A tab that went on would make the
  // next one when its longest pause is over.
  await page.clock.fastForward("01:00");
  await page.evaluate(() => undefined);
  expect(sockets).toBe(1);

  await notice.getByRole("link", { name: "Sign in" }).click();
  await expect(page).toHaveURL(/\/console\/login\?next=%2Fconsole%2Fsandboxes/);
  await signIn(page);
  await expect(page).toHaveURL(/\/console\/sandboxes\?q=suite(%3D|=)browser&state=Running$/);
  await hydrated(page);
});

test("a tab goes on with the session that followed its own", async ({ page, context }) => {
  await logIn(page);
  await hydrated(page);
  const again = page.waitForEvent("websocket");
  const other = await context.newPage();
  // A new session for the same browser; the one of the open connection is over.
  await logIn(other);
  await again;
  await hydrated(page);
  await expect(page.getByRole("alert")).toHaveCount(0);
});

test("a terminal says that it was signed out, and finds its shell again", async ({
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

test("a sandbox that is opened without a session offers the sign-in", async ({
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
  // The refused calls stand in the browser's log.
  for (const fault of faults.splice(0)) expect(fault).toContain("401");
});
