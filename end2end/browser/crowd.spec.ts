// One sandbox among a thousand, on the simulated runtime.

import type { Page } from "@playwright/test";
import { Api, expect, hydrated, logIn } from "./console";
import { testsWithOwn } from "./own";

const test = testsWithOwn(async () => ({ runtime: "sim" }));

const rows = (page: Page) => page.locator("table.list tbody tr");

/** Makes a thousand sandboxes and returns the id of the one that is looked for. */
async function crowd(api: Api): Promise<string> {
  let needle = "";
  for (let first = 0; first < 1_000; first += 50) {
    const made = Array.from({ length: 50 }, async (_, at) => {
      const number = first + at;
      const team = ["red", "green", "blue"][number % 3];
      const { id } = await api.create(undefined, { name: `worker-${number}`, team });
      if (number === 617) needle = id;
    });
    await Promise.all(made);
  }
  return needle;
}

test("one among a thousand is found by query and by palette, with keys alone", async ({ page, api }) => {
  test.slow();
  const needle = await crowd(api);
  await logIn(page);
  await hydrated(page);
  await expect(page.locator("#main")).toContainText("1000");
  await page.keyboard.press("/");
  await page.keyboard.type("state:running label.team=blue name:worker-6*7");
  // 617, 647 and 677 are blue, as is every third.
  await expect(rows(page)).toHaveCount(3);
  await page.keyboard.type(" -name:*47 -name:*77");
  await expect(rows(page)).toHaveCount(1);
  await expect(rows(page)).toContainText("worker-617");
  const link = rows(page).locator("[data-row-link]");
  await expect(async () => {
    await page.keyboard.press("Tab");
    await expect(link).toBeFocused({ timeout: 50 });
  }).toPass({ intervals: [0] });
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`/console/sandboxes/${needle}$`));
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("worker-617");

  await page.goto("/console");
  await hydrated(page);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("worker-617");
  await expect(page.getByRole("option").filter({ hasText: "worker-617" })).toHaveCount(1);
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`/console/sandboxes/${needle}$`));
});

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("one among a thousand is found, and all are reached page by page", async ({ page, api }) => {
    test.slow();
    const needle = await crowd(api);
    await logIn(page);
    await expect(page.locator("#main")).toContainText("1000");
    const first = await rows(page).first().innerText();
    await page.getByRole("link", { name: /^Next/ }).click();
    await expect(page).toHaveURL(/page=2/);
    expect(await rows(page).first().innerText()).not.toBe(first);
    await page.getByRole("searchbox").fill("label.team=blue name:worker-617");
    await page.keyboard.press("Enter");
    await expect(rows(page)).toHaveCount(1);
    await rows(page).getByRole("link").first().click();
    await expect(page).toHaveURL(new RegExp(`/console/sandboxes/${needle}$`));
  });
});
