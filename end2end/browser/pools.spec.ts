// Pools: added, followed, changed and deleted, and the sandboxes that come from them.

import type { Page } from "@playwright/test";
import { expect, hydrated, image, key, logIn, tabTo, test } from "./console";

const path = "/console/pools";
const line = (page: Page, name: string) =>
  page.locator("table.pools tbody tr").filter({ has: page.getByRole("link", { name, exact: true }) });
const action = (page: Page, name: string) => page.getByRole("button", { name, exact: true });
/** The value beside a name in a card of the page. */
const fact = (page: Page, card: string, name: string) =>
  page
    .getByRole("region", { name: card, exact: true })
    .locator("dt")
    .filter({ hasText: new RegExp(`^${name}$`) })
    .locator("+ dd");

test.beforeEach(async ({ api }) => {
  test.skip(!(await api.hasPools()), "the runtime of this server has no pools");
});

/** Opens a page of the console and waits until it is live. */
async function open(page: Page, address: string): Promise<void> {
  await logIn(page, address);
  await hydrated(page);
}

test("one is added, filled, used, changed and deleted with keys alone", async ({ page, api }) => {
  test.setTimeout(120_000);
  await open(page, "/console");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("pools");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`${path}$`));
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Pools");
  await tabTo(page, page.locator("details.pool-add > summary"));
  await page.keyboard.press("Enter");
  await tabTo(page, page.getByLabel("Name", { exact: true }));
  await page.keyboard.type("Not A Name");
  await page.keyboard.press("Enter");
  // What is wrong is at its field, and the first of it has the focus.
  await expect(page.getByLabel("Name", { exact: true })).toBeFocused();
  await expect(page.getByLabel("Name", { exact: true })).toHaveAccessibleDescription(/lower-case letters/);
  await expect(page.locator("#pool-image-problem")).toHaveText("This is required.");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("by-keys");
  await tabTo(page, page.getByLabel("Image", { exact: true }));
  await page.keyboard.type(image);
  await tabTo(page, page.getByLabel("Environment"));
  await page.keyboard.type("COLOUR=blue");
  await tabTo(page, page.getByLabel("Most that wait"));
  await page.keyboard.press("Control+a");
  await page.keyboard.type("1");
  await page.keyboard.press("Enter");
  await expect(page.locator(".toasts")).toContainText("The pool by-keys is added");
  await expect(page).toHaveURL(new RegExp(`${path}/by-keys$`));
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("by-keys");
  await expect(page.locator("#main")).toBeFocused();
  // Without a reload.
  await expect(fact(page, "Sandboxes", "Ready")).toHaveText("1", { timeout: 60_000 });
  await expect(page.locator(".page-head")).toContainText("Ready");
  await expect(fact(page, "Template", "Variables")).toHaveText("COLOUR");
  await expect(page.locator("#main")).not.toContainText("blue");

  const claimed = await api.claim("by-keys");
  expect(await api.run(claimed.id, "echo $COLOUR")).toContain("blue");
  await expect(fact(page, "Sandboxes", "Claimed")).toHaveText("1", { timeout: 30_000 });

  await tabTo(page, page.getByLabel("Most in all"));
  await page.keyboard.press("Control+a");
  await page.keyboard.type("many");
  await page.keyboard.press("Enter");
  await expect(page.locator("#capacity-pool_max-problem")).toHaveText("This must be a whole number.");
  await page.getByLabel("Most in all").focus();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("7");
  await page.keyboard.press("Enter");
  await expect(page.locator(".toasts")).toContainText("The capacity of by-keys is changed");
  await expect(fact(page, "Sandboxes", "Total")).toContainText("of at most 7");

  await tabTo(page, action(page, "Delete"));
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("alertdialog");
  await expect(dialog).toHaveAccessibleName("Delete the pool by-keys?");
  await expect(dialog).toContainText("The one that is claimed goes on");
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();
  expect(await api.readyIn("by-keys")).toBeDefined();
  await page.keyboard.press("Enter");
  await tabTo(page, dialog.getByRole("button", { name: "Delete pool" }));
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`${path}$`));
  await expect(page.locator(".toasts")).toContainText("The pool by-keys is deleted");
  expect(await api.readyIn("by-keys")).toBeUndefined();
  expect(await api.run(claimed.id, "echo it goes on")).toContain("it goes on");
});

test("the list follows claims, and a sandbox leads to its pool", async ({ page, api }) => {
  test.setTimeout(120_000);
  await api.pool("listed", 1);
  await open(page, path);
  const row = line(page, "listed");
  await expect(row.locator(".c-ready")).toHaveText("1");
  await expect(row.locator(".c-claimed")).toHaveText("0");
  await expect(row).toContainText(image);
  const { id } = await api.claim("listed");
  await expect(row.locator(".c-claimed")).toHaveText("1", { timeout: 30_000 });
  await page.goto(`/console/sandboxes/${id}`);
  await hydrated(page);
  const link = page.getByRole("region", { name: "About" }).getByRole("link", { name: "listed", exact: true });
  await tabTo(page, link);
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`${path}/listed$`));
  await expect(page.locator("#main")).not.toContainText("a-secret-of-the-pool");
  const calls = page.locator("details").filter({ hasText: "As API calls" }).first();
  await calls.locator("summary").first().click();
  await calls.getByText("Create a sandbox from it").click();
  await expect(calls).toContainText('"poolRef": "listed"');
  // Back to the row that was opened, with the keys of lists.
  await page.goto(path);
  await hydrated(page);
  await page.keyboard.press("j");
  await expect(page.locator("[data-row-link]").first()).toBeFocused();
  // The audit trail names it whole.
  await page.goto("/console/events?action=pool.create");
  await hydrated(page);
  await page.locator(".events tbody").getByRole("link", { name: "listed", exact: true }).first().press("Enter");
  await expect(page).toHaveURL(new RegExp(`${path}/listed$`));
});

test("a pool that cannot be filled says why", async ({ page, api }) => {
  test.setTimeout(120_000);
  await api.pool("no-image", 0, "registry.invalid/none:1");
  await open(page, path);
  const row = line(page, "no-image");
  await expect(row).toContainText("Failing", { timeout: 60_000 });
  const failure = page.locator(".pool-failures").filter({ hasText: "no-image" });
  await expect(failure).toContainText("registry.invalid/none:1");
  await failure.getByRole("link", { name: "no-image" }).click();
  await expect(page.getByRole("status").filter({ hasText: "The server tries again" })).toContainText(
    "registry.invalid/none:1",
  );
});

test("a viewer sees pools, and why nothing can be changed", async ({ page, api }) => {
  test.skip(!key, "this server has no key");
  await api.pool("looked-at", 0);
  const added = await api.call("POST", "/api-keys", { name: "viewer-of-pools", role: "read_only" });
  const { secret, apiKey } = (await added.json()) as { secret: string; apiKey: { id: string } };
  try {
    await page.goto(`/console/login?next=${path}`);
    await page.getByLabel("API key").fill(secret);
    await page.getByRole("button", { name: "Sign in" }).click();
    await hydrated(page);
    const add = action(page, "Add a pool");
    await expect(add).toHaveAccessibleDescription(/Your role may look/);
    await add.press("Enter");
    await line(page, "looked-at").getByRole("link", { name: "looked-at", exact: true }).click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("looked-at");
    for (const name of ["Change the capacity", "Delete"]) {
      await expect(action(page, name)).toHaveAttribute("aria-disabled", "true");
      await expect(action(page, name)).toHaveAccessibleDescription(/Your role may look/);
      await action(page, name).press("Enter");
    }
    await expect(page.getByRole("alertdialog")).toBeHidden();
    expect(await api.readyIn("looked-at")).toBeDefined();
  } finally {
    await api.call("DELETE", `/api-keys/${apiKey.id}`);
  }
});

for (const width of [360, 768, 1440]) {
  test(`the pages fit into ${width} px`, async ({ page, api }) => {
    const name = `a-rather-long-name-of-a-pool-of-the-team-${width}`;
    await api.pool(name, 0);
    await page.setViewportSize({ width, height: 900 });
    for (const address of [path, `${path}/${name}`]) {
      await open(page, address);
      for (const summary of await page.locator("details.add > summary").all()) await summary.click();
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect([address, wide <= width]).toEqual([address, true]);
    }
    // Each number has a place of its own.
    await open(page, path);
    const cells = line(page, name).locator(".c-number");
    const places = await cells.evaluateAll((all) => all.map((it) => Math.round(it.getBoundingClientRect().left)));
    expect(places.length).toBe(4);
    expect(new Set(places).size).toBe(places.length);
  });
}

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("one is added, read, changed and deleted", async ({ page, api, faults }) => {
    await logIn(page, path);
    await page.locator("details.pool-add > summary").click();
    await page.getByLabel("Name", { exact: true }).fill("by-form");
    await page.getByRole("button", { name: "Add the pool" }).click();
    // With what was typed.
    await expect(page.locator("#pool-image-problem")).toHaveText("This is required.");
    await expect(page.getByLabel("Name", { exact: true })).toHaveValue("by-form");
    // The browser logs the status of the refusal.
    expect(faults.splice(0)).toEqual([expect.stringContaining("status of 422")]);
    await page.getByLabel("Image", { exact: true }).fill(image);
    await page.getByRole("button", { name: "Add the pool" }).click();
    await expect(page.locator(".toasts")).toContainText("The pool by-form is added");
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("by-form");
    // While it fills up, the page reads itself again.
    await expect.poll(() => api.readyIn("by-form"), { timeout: 60_000 }).toBeGreaterThan(0);
    await page.goto(`${path}/by-form`);
    await page.getByLabel("Most in all").fill("5");
    await action(page, "Change the capacity").click();
    await expect(page.locator(".toasts")).toContainText("The capacity is changed");
    await expect(fact(page, "Sandboxes", "Total")).toContainText("of at most 5");
    await page.goto(path);
    await expect(line(page, "by-form")).toContainText(image);
    await line(page, "by-form").getByRole("link", { name: "by-form", exact: true }).click();
    await action(page, "Delete").click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("Delete the pool by-form?");
    await page.getByRole("link", { name: "Cancel" }).click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("by-form");
    await action(page, "Delete").click();
    await page.getByRole("button", { name: "Delete pool" }).click();
    await expect(page.locator(".toasts")).toContainText("The pool by-form is deleted");
    expect(await api.readyIn("by-form")).toBeUndefined();
  });
});
