// The list as its user wants it: columns in the URL, and saved views in the browser.

import type { Page } from "@playwright/test";
import { expect, hydrated, logIn, row, tabTo, test } from "./console";

const headers = (page: Page) => page.getByRole("columnheader");

// Nothing of the engine is tested.
test.use({ runtime: "sim" });

test("columns are hidden and shown by keyboard, in the URL", async ({ page, sandbox }) => {
  await logIn(page, "/console/sandboxes");
  await hydrated(page);
  await expect(headers(page).filter({ hasText: "Image" })).toBeVisible();
  await tabTo(page, page.locator("summary").filter({ hasText: "Columns" }));
  await page.keyboard.press("Enter");
  await tabTo(page, page.getByRole("link", { name: "Hide the column Image" }));
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/hide=image/);
  await expect(headers(page).filter({ hasText: "Image" })).toBeHidden();
  await expect(row(page, sandbox).locator(".c-image")).toBeHidden();
  await expect(row(page, sandbox).locator(".c-age")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.locator("summary").filter({ hasText: "Columns" })).toBeFocused();
  // The columns stay with other states, orders and filters.
  await page.getByRole("link", { name: /^Running/ }).click();
  await expect(page).toHaveURL(/hide=image/);
  await page.reload();
  await hydrated(page);
  await expect(headers(page).filter({ hasText: "Image" })).toBeHidden();
  await page.locator("summary").filter({ hasText: "Columns" }).click();
  await page.getByRole("link", { name: "Show the column Image" }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes\?state=Running$/);
  await expect(row(page, sandbox).locator(".c-image")).toBeVisible();
  // Without tenants there is no such column.
  await expect(page.getByRole("link", { name: "Hide the column Labels" })).toBeVisible();
  await expect(page.getByRole("link", { name: /the column Tenant/ })).toHaveCount(0);
});

test("a view is saved, opened and deleted, by keyboard", async ({ page, sandbox }) => {
  await logIn(page, "/console/sandboxes?q=label.suite%3Dbrowser&sort=-name&hide=image");
  await hydrated(page);
  const views = page.locator("summary").filter({ hasText: "Views" });
  await tabTo(page, views);
  await page.keyboard.press("Enter");
  await tabTo(page, page.getByLabel("Name of the view"));
  await page.keyboard.type("Of the tests");
  await page.keyboard.press("Enter");
  const view = page.getByRole("link", { name: "Of the tests" });
  await expect(view).toHaveAttribute("aria-current", "true");
  await page.goto("/console/sandboxes");
  await hydrated(page);
  await views.click();
  await expect(view).not.toHaveAttribute("aria-current", "true");
  await view.click();
  await expect(page).toHaveURL(/q=label.suite%3Dbrowser&sort=(%2D|-)name&hide=image$/);
  await expect(view).toBeHidden();
  await expect(page.getByRole("searchbox")).toHaveValue("label.suite=browser");
  await expect(row(page, sandbox).locator(".c-image")).toBeHidden();
  await views.click();
  await tabTo(page, page.getByRole("button", { name: "Delete the view Of the tests" }));
  await page.keyboard.press("Enter");
  await expect(view).toHaveCount(0);
  await expect(page.getByLabel("Name of the view")).toBeFocused();
  await page.reload();
  await hydrated(page);
  await views.click();
  await expect(page.getByText("A view keeps filter, state, order and columns")).toBeVisible();
});

for (const width of [360, 390, 768]) {
  test(`what columns and views open fits into ${width} px`, async ({ page, sandbox }) => {
    await page.setViewportSize({ width, height: 800 });
    await logIn(page, "/console/sandboxes");
    await hydrated(page);
    await expect(row(page, sandbox)).toBeVisible();
    for (const name of ["Columns", "Views"]) {
      const summary = page.locator("summary").filter({ hasText: name });
      await summary.click();
      const card = await summary.locator("..").locator(".confirm-card").boundingBox();
      expect(card!.x).toBeGreaterThanOrEqual(0);
      expect(card!.x + card!.width).toBeLessThanOrEqual(width);
      await page.keyboard.press("Escape");
    }
  });
}

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("columns are chosen by links, and a filter keeps them", async ({ page, sandbox }) => {
    await logIn(page, "/console/sandboxes");
    await page.locator("summary").filter({ hasText: "Columns" }).click();
    await page.getByRole("link", { name: "Hide the column Image" }).click();
    await expect(row(page, sandbox).locator(".c-image")).toBeHidden();
    await page.getByRole("searchbox").fill("label.suite=browser");
    await page.getByRole("button", { name: "Apply" }).click();
    await expect(page).toHaveURL(/hide=image/);
    await expect(row(page, sandbox).locator(".c-image")).toBeHidden();
  });
});
