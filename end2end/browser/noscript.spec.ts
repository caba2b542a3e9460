// Without script, lists and pages are readable and the main actions work.

import { expect, image, logIn, row, test } from "./console";

test.use({ javaScriptEnabled: false });

test("list, page and actions without script", async ({ page, sandbox, api }) => {
  await logIn(page);
  await expect(row(page, sandbox)).toContainText("Running");
  await page.goto("/console/sandboxes?q=nothing-is-called-this");
  await expect(page.locator("#main")).toContainText("No matches");
  await page.goto("/console/sandboxes");
  await row(page, sandbox).getByRole("link").first().click();
  await expect(page.locator("#main")).toContainText(image);
  await page.locator("summary").filter({ hasText: "State" }).click();
  await expect(page.getByRole("list", { name: "Stages" })).toContainText("ready");
  await page.getByLabel("New time to live").selectOption("14400");
  await page.getByRole("button", { name: "Extend" }).click();
  await expect(page.locator(".toasts")).toContainText("expires at");
  await page.getByLabel("New time to live").selectOption("900");
  await page.getByRole("button", { name: "Extend" }).click();
  await expect(page.locator(".toasts")).toContainText("would shorten its life");
  await page.getByLabel("New time to live").selectOption("900");
  await page.getByLabel("Even if that is sooner").check();
  await page.getByRole("button", { name: "Extend" }).click();
  await expect(page.locator(".head-fact")).toContainText("in 15 min");
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await expect(page.locator(".toasts")).toContainText("is paused");
  await expect(page.locator(".page-head")).toContainText("Paused");
  await page.getByRole("button", { name: "Resume", exact: true }).click();
  await expect(page.locator(".toasts")).toContainText("runs again");
  await expect(page.locator(".page-head")).toContainText("Running");
  await page.getByLabel("Port").fill("8000");
  await page.getByRole("button", { name: "Show" }).click();
  await expect(page.locator("#main")).toContainText("/proxy/8000");
  await page.getByLabel("Port").fill("70000");
  await page.getByRole("button", { name: "Show" }).click();
  await expect(page.locator("#port-problem")).toContainText("65535");
  await expect(page.getByLabel("Port")).toHaveValue("70000");
  await expect(page.locator(".addresses")).toHaveCount(0);
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(`Delete ${sandbox.short}?`);
  await page.getByRole("link", { name: "Cancel" }).click();
  expect(await api.mine()).toContain(sandbox.id);
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("button", { name: "Delete sandbox" }).click();
  await expect(page.locator(".toasts")).toContainText("being deleted");
  await expect.poll(() => api.mine()).not.toContain(sandbox.id);
});

test("labels are changed without script", async ({ page, api }) => {
  const { id } = await api.create(undefined, { team: "a" });
  await logIn(page, `/console/sandboxes/${id}`);
  const labels = page.locator(".own-labels");
  await labels.locator("summary").click();
  await labels.getByLabel("Value of name").fill("not a label");
  await labels.getByRole("button", { name: "Save labels" }).click();
  await expect(page.locator(".toasts")).toContainText("A value is empty, or 1 to 63");
  await labels.locator("summary").click();
  await labels.getByLabel("Value of name").fill("renamed");
  await labels.getByLabel("Label name").last().fill("owner");
  await labels.getByLabel("Value of a new label").last().fill("zoe");
  await labels.getByRole("button", { name: "Save labels" }).click();
  await expect(page.locator(".toasts")).toContainText("renamed has new labels");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("renamed");
  await expect(labels.locator(".labels")).toContainText("owner=zoe");
});

test("the selected rows are deleted without script, after a question", async ({ page, api }) => {
  const made = [await api.create(undefined, { name: "one-of-two" }), await api.create()];
  await logIn(page);
  for (const sandbox of made) await row(page, sandbox).getByRole("checkbox").check();
  await page.locator(".bulk").getByRole("button", { name: "Delete" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Delete 2 sandboxes?");
  await expect(page.getByRole("listitem")).toHaveCount(2);
  await expect(page.getByRole("listitem").filter({ hasText: "one-of-two" })).toBeVisible();
  await page.getByRole("button", { name: "Delete selected" }).click();
  await expect(page.locator(".toasts")).toContainText("2 of 2 deleted");
  for (const { id } of made) await expect.poll(() => api.mine()).not.toContain(id);
});

test("creating without script, with a mistake first", async ({ page, api, faults }) => {
  await logIn(page, "/console/create");
  await page.getByLabel("Image").fill(image);
  await page.getByLabel("Time to live").fill("1s");
  await page.getByLabel("Labels").fill("suite=browser");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page.locator("#ttl-problem")).toContainText("at least 1 minute");
  await expect(page.getByLabel("Image")).toHaveValue(image);
  // The page with the mistake is a 422, which the browser logs.
  expect(faults.splice(0)).toEqual([expect.stringContaining("422")]);
  await page.getByLabel("Time to live").fill("10m");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.locator(".page-head")).toContainText("Running");
  expect(await api.mine()).toContain(page.url().split("/").pop());
});

test("a terminal and a preview say what they need, and the design page reads", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  const without = page.locator("#main noscript .banner");
  await expect(without).toBeVisible();
  await expect(without).toContainText("The terminal needs JavaScript.");
  await expect(without).toContainText("POST /command");
  await expect(page.getByText("Connecting …")).toBeHidden();
  await page.goto(`/console/sandboxes/${sandbox.id}/preview`);
  await expect(page.locator("#main")).toContainText("No program of this sandbox listens");
  await page.goto("/console/design");
  await expect(page.getByRole("heading", { level: 1 })).toHaveCount(1);
  await expect(page.getByRole("heading", { level: 2 }).first()).toBeVisible();
  expect((await page.locator("#main").innerText()).length).toBeGreaterThan(500);
});
