// Events & audit: who did what to which sandbox.

import { readFileSync } from "node:fs";
import { type Api, expect, hydrated, key, logIn, test as base } from "./console";

const path = "/console/events";

/** Waits until the trail has the create of a sandbox, which it gets after the answer. */
async function recorded(api: Api, id: string): Promise<void> {
  const kept = async () => (await (await api.call("GET", `/audit?sandbox=${id}`)).json()).items.length;
  await expect.poll(kept).toBeGreaterThan(0);
}

const test = base.extend({
  sandbox: async ({ api, sandbox }, use) => {
    await recorded(api, sandbox.id);
    await use(sandbox);
  },
});

// Nothing of the engine is tested.
test.use({ runtime: "sim" });

test("what was done to a sandbox is found, by keyboard, and leads back to it", async ({ page, sandbox }) => {
  await logIn(page, path);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Events & audit");
  await hydrated(page);
  await page.getByLabel("Sandbox (id)").focus();
  await page.keyboard.type(sandbox.id);
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`sandbox=${sandbox.id.slice(0, 8)}`));
  const rows = page.locator(".events tbody tr");
  await expect(rows).toHaveCount(1);
  await expect(rows).toContainText("sandbox.create");
  await expect(rows).toContainText("Done");
  await rows.locator("summary").focus();
  await page.keyboard.press("Enter");
  const details = rows.locator(".confirm-card");
  await expect(details).toContainText("Request id");
  await expect(details).toContainText("Address");
  await page.keyboard.press("Escape");
  await expect(details).toBeHidden();
  await rows.getByRole("link", { name: sandbox.short }).focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`/console/sandboxes/${sandbox.id}$`));
  await page.goBack();
  await expect(rows).toHaveCount(1);
  await expect(page.getByLabel("Sandbox (id)")).toHaveValue(sandbox.id);
});

test("refusals are selected and new entries appear on request", async ({ page, api, sandbox, baseURL }) => {
  await logIn(page, `${path}?sandbox=${sandbox.id}`);
  await hydrated(page);
  const rows = page.locator(".events tbody tr");
  await expect(rows).toHaveCount(1);
  await api.remove(sandbox.id);
  await expect
    .poll(async () => {
      await page.getByRole("link", { name: "Refresh" }).click();
      return await rows.count();
    })
    .toBeGreaterThan(1);
  await expect(rows.first()).toContainText("sandbox.delete");
  if (key !== "") {
    await fetch(`${baseURL}/v1/sandboxes`, { headers: { "OPEN-SANDBOX-API-KEY": "wrong" } });
    await page.goto(path);
    await hydrated(page);
    await page.getByLabel("Outcome").selectOption("denied");
    await page.getByRole("button", { name: "Filter" }).click();
    await expect(page).toHaveURL(/outcome=denied/);
    // The former rows stay until the answer comes.
    await expect(async () => {
      await page.getByRole("link", { name: "Refresh" }).click();
      await expect(rows.filter({ hasText: "Denied" })).not.toHaveCount(0, { timeout: 1_000 });
      await expect(rows.filter({ hasNotText: "Denied" })).toHaveCount(0, { timeout: 1_000 });
    }).toPass();
  }
  await page.goto(`${path}?last=forever`);
  await expect(page.locator("#event-last-problem")).toContainText("must be one of");
  await page.getByRole("link", { name: "Clear" }).click();
  await expect(page).toHaveURL(/\/console\/events$/);
});

test.describe("in another time zone", () => {
  test.use({ timezoneId: "Asia/Kolkata" });

  test("times of the filter are local, and those of the address are not", async ({ page, sandbox }) => {
    await logIn(page, `${path}?sandbox=${sandbox.id}&since=2026-01-01T00:00:00Z`);
    await hydrated(page);
    await expect(page.getByLabel("From", { exact: true })).toHaveValue("2026-01-01T05:30");
    await expect(page.locator(".events tbody tr").first()).toContainText("sandbox.create");
    await page.getByLabel("To", { exact: true }).fill("2026-01-02T05:30");
    await page.getByRole("button", { name: "Filter" }).click();
    await expect(page).toHaveURL(/until=2026-01-02T00%3A00%3A00Z/);
    await expect(page).toHaveURL(/since=2026-01-01T00%3A00%3A00Z/);
    await expect(page.getByRole("heading", { name: "No matches" })).toBeVisible();
  });
});

test("newer entries are offered while the page is open, and shown on request", async ({ page, api, sandbox }) => {
  await logIn(page, `${path}?action=sandbox.create`);
  await hydrated(page);
  await expect(page.locator(".events tbody tr").first()).toContainText(sandbox.short);
  const { id, short } = await api.create();
  // The sign-in may be offered, too, before the trail has the new sandbox.
  await recorded(api, id);
  const newer = page.getByRole("status").getByRole("button", { name: /newer entr/ });
  await newer.focus();
  await expect(page.locator(".events tbody tr").first()).toContainText(sandbox.short);
  await page.keyboard.press("Enter");
  await expect(page.locator(".events tbody tr").first()).toContainText(short);
  await expect(newer).toHaveCount(0);
});

test("the trail is downloaded for spreadsheets", async ({ page, sandbox }) => {
  await logIn(page, `${path}?sandbox=${sandbox.id}`);
  await hydrated(page);
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "CSV" }).click(),
  ]);
  expect(file.suggestedFilename()).toBe("audit.csv");
  const text = readFileSync((await file.path())!, "utf8");
  expect(text).toMatch(/^id,at,action,outcome/);
  expect(text).toContain(sandbox.id);
});

for (const width of [360, 768, 1440]) {
  test(`the page fits into ${width} px`, async ({ page, sandbox }) => {
    await page.setViewportSize({ width, height: 900 });
    await logIn(page, `${path}?sandbox=${sandbox.id}`);
    await hydrated(page);
    await page.locator(".events summary").first().click();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide).toBeLessThanOrEqual(width);
  });
}

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("the trail is read and filtered", async ({ page, sandbox }) => {
    await logIn(page, path);
    await page.getByLabel("Sandbox (id)").fill(sandbox.id);
    await page.getByRole("button", { name: "Filter" }).click();
    const rows = page.locator(".events tbody tr");
    await expect(rows).toHaveCount(1);
    await expect(rows).toContainText("UTC");
    await rows.getByRole("link", { name: sandbox.short }).click();
    await expect(page).toHaveURL(new RegExp(`/console/sandboxes/${sandbox.id}$`));
  });
});
