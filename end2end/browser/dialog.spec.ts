// Dialogs that ask before a delete: what closes them, and where the focus goes.

import type { Page } from "@playwright/test";
import { expect, hydrated, logIn, row, test } from "./console";

const dialog = (page: Page) => page.getByRole("alertdialog");

test("a delete is asked for in a dialog that keeps the focus and gives it back", async ({ page, api }) => {
  const sandbox = await api.create(undefined, { name: "asked-for" });
  await logIn(page, `/console/sandboxes?q=${sandbox.id}`);
  await hydrated(page);
  const opener = row(page, sandbox).getByRole("button", { name: `Delete ${sandbox.short}` });
  const cancel = dialog(page).getByRole("button", { name: "Cancel" });
  const closings = [
    () => page.keyboard.press("Escape"),
    () => cancel.click(),
    () => dialog(page).getByRole("button", { name: "Close" }).click(),
    () => page.mouse.click(5, 300),
  ];
  for (const close of closings) {
    await opener.click();
    await expect(dialog(page)).toHaveAccessibleName("Delete asked-for?");
    await expect(dialog(page)).toHaveAccessibleDescription(/cannot be undone/);
    await expect(cancel).toBeFocused();
    await close();
    await expect(dialog(page)).toBeHidden();
    await expect(opener).toBeFocused();
  }
  await opener.click();
  // A press inside does not close it.
  await page.locator("#confirm-text").click();
  await expect(dialog(page)).toBeVisible();
  // The focus goes around in the dialog. The browser's own controls are one of the stops.
  for (let step = 0; step < 6; step += 1) {
    await page.keyboard.press("Tab");
    const outside = await page.evaluate(
      () => document.activeElement !== document.body && !document.activeElement?.closest("dialog"),
    );
    expect(outside).toBe(false);
  }
  expect(await api.mine()).toContain(sandbox.id);
});

test("a row is deleted with keys alone", async ({ page, api }) => {
  const sandbox = await api.create(undefined, { name: "by-keys" });
  await logIn(page, `/console/sandboxes?q=${sandbox.id}`);
  await hydrated(page);
  await page.keyboard.press("j");
  await page.keyboard.press("Delete");
  await expect(dialog(page)).toBeVisible();
  // Keys of the page do nothing meanwhile.
  await page.keyboard.press("c");
  await expect(dialog(page)).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(row(page, sandbox).locator("[data-row-link]")).toBeFocused();
  await page.keyboard.press("Delete");
  await page.keyboard.press("Tab");
  await expect(dialog(page).getByRole("button", { name: "Delete sandbox" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(dialog(page)).toBeHidden();
  await expect(page.locator(".toasts")).toContainText("by-keys is being deleted");
  await expect(row(page, sandbox)).toHaveCount(0);
  await expect.poll(() => api.mine()).not.toContain(sandbox.id);
});

test("the selected rows are deleted after one question", async ({ page, api }) => {
  const made = [await api.create(undefined, { team: "asked" }), await api.create(undefined, { team: "asked" })];
  await logIn(page, "/console/sandboxes?q=label.team%3Dasked");
  await hydrated(page);
  await page.getByLabel("Select all on this page").check();
  await page.locator(".bulk").getByRole("button", { name: "Delete" }).click();
  await expect(dialog(page)).toHaveAccessibleName("Delete 2 sandboxes?");
  await dialog(page).getByRole("button", { name: "Delete selected" }).click();
  await expect(page.locator(".bulk-results")).toContainText("2 of 2 deleted");
  for (const { id } of made) await expect.poll(() => api.mine()).not.toContain(id);
});

test("targets of a row are large enough, and delete stands apart", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes?q=${sandbox.id}`);
  await hydrated(page);
  const box = async (name: RegExp) =>
    (await row(page, sandbox).getByRole("button", { name }).boundingBox())!;
  const [renew, pause, remove] = [await box(/^Extend/), await box(/^Pause/), await box(/^Delete/)];
  for (const { width, height } of [renew, pause, remove]) {
    expect(Math.min(width, height)).toBeGreaterThanOrEqual(24);
  }
  expect(remove.x - (pause.x + pause.width)).toBeGreaterThanOrEqual(12);
});

test("a dialog has a border where the system chooses the colours", async ({ page, sandbox }) => {
  await page.emulateMedia({ forcedColors: "active" });
  await logIn(page, `/console/sandboxes?q=${sandbox.id}`);
  await hydrated(page);
  await row(page, sandbox).getByRole("button", { name: /^Delete/ }).click();
  const style = await dialog(page).evaluate((it) => {
    const { borderTopWidth, borderTopColor, backgroundColor } = getComputedStyle(it);
    return { borderTopWidth, differs: borderTopColor !== backgroundColor };
  });
  expect(style).toEqual({ borderTopWidth: "1px", differs: true });
});
