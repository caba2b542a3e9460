// The metrics tab: values move while a program works, and are read without a pointer and without script.

import { expect, hydrated, logIn, test } from "./console";

const BUSY = ["bash", "-c", "while :; do :; done"];

test("the charts move under load", async ({ page, api }) => {
  const { id } = await api.create(BUSY);
  await logIn(page, `/console/sandboxes/${id}/metrics`);
  await hydrated(page);
  const chart = page.getByRole("figure").filter({ has: page.getByRole("heading", { name: "CPU" }) });
  const values = chart.locator(".chart-values");
  // Its limit is half a core, which the loop uses up.
  await expect(values).toContainText(/0\.[3-6]\d cores, peak .* limit 0\.50 cores/);
  const path = chart.locator(".chart-line");
  const before = await path.getAttribute("d");
  await expect.poll(() => path.getAttribute("d")).not.toBe(before);
  await expect(page.getByRole("heading", { name: "Memory" })).toBeVisible();
  // A pointer and the arrow keys show single values.
  await chart.getByRole("img").hover();
  await expect(values).toContainText("before the end");
  await page.mouse.move(0, 0);
  await expect(values).toContainText("peak");
  await chart.getByRole("img").focus();
  await page.keyboard.press("ArrowLeft");
  await expect(values).toContainText("before the end");

  await page.getByRole("link", { name: "Since start" }).click();
  await expect(page).toHaveURL(/range=start/);
  await page.getByRole("link", { name: "Show as table" }).click();
  await expect(page.getByRole("region", { name: "Values as a table" })).toContainText("cores");
});

test("the overview shows the present use", async ({ page, api }) => {
  const { id } = await api.create(BUSY);
  await logIn(page, `/console/sandboxes/${id}`);
  await hydrated(page);
  const usage = page.getByRole("region", { name: "CPU and memory" });
  await expect(usage).toContainText(/0\.[3-6]\d cores of 0\.50 cores/);
  await expect(usage).toContainText(/MiB of 256 MiB/);
});

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("charts and table are in the page", async ({ page, api }) => {
    const { id } = await api.create(BUSY);
    await logIn(page, `/console/sandboxes/${id}/metrics`);
    await expect(async () => {
      await page.goto(`/console/sandboxes/${id}/metrics?range=1h&table=on`);
      await expect(page.getByRole("region", { name: "Values as a table" })).toContainText("cores", { timeout: 500 });
    }).toPass({ timeout: 60_000 });
    await expect(page.locator(".chart-line").first()).toBeAttached();
  });
});
