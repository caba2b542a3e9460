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

test("a part of the time is chosen by dragging, by keys and by links", async ({ page, api }) => {
  const { id } = await api.create(BUSY);
  await logIn(page, `/console/sandboxes/${id}/metrics?range=15m`);
  await hydrated(page);
  const figure = (name: string) => page.getByRole("figure").filter({ has: page.getByRole("heading", { name }) });
  const plot = figure("CPU").getByRole("img");
  await expect(figure("CPU").locator(".chart-values")).toContainText("peak");
  const events = page.getByRole("list", { name: "Events on the time axis" });
  await expect(events).toContainText("Created");
  await expect(events).toContainText("Ready");
  await expect(figure("CPU").locator(".chart-mark").first()).toBeAttached();

  // The cursor is that of all charts.
  await plot.hover();
  await expect(figure("Memory").locator(".chart-values")).toContainText("before the end");
  const box = (await plot.boundingBox())!;
  await page.mouse.move(box.x + box.width * 0.5, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.75, box.y + 40);
  await expect(figure("Memory").locator(".chart-choice")).toBeAttached();
  await page.mouse.up();
  const part = () => {
    const query = new URL(page.url()).searchParams;
    return Number(query.get("to")) - Number(query.get("from"));
  };
  await expect(page).toHaveURL(/range=15m&from=\d+&to=\d+/);
  // A quarter of 15 minutes.
  expect(Math.abs(part() - 225)).toBeLessThan(15);
  const links = page.getByRole("navigation", { name: "Part of the time" });
  await links.getByRole("link", { name: "Zoom out" }).press("Enter");
  await expect.poll(part).toBeGreaterThan(400);
  const wide = part();
  await page.reload();
  await hydrated(page);
  await expect.poll(part).toBe(wide);
  await links.getByRole("link", { name: "Whole time" }).press("Enter");
  await expect(page).not.toHaveURL(/from=/);
  await expect(links.getByRole("link", { name: "Whole time" })).toHaveCount(0);

  await plot.focus();
  for (let step = 0; step < 10; step += 1) await page.keyboard.press("Shift+ArrowLeft");
  await expect(figure("CPU").locator(".chart-choice")).toBeAttached();
  await page.keyboard.press("Escape");
  await expect(figure("CPU").locator(".chart-choice")).toHaveCount(0);
  for (let step = 0; step < 10; step += 1) await page.keyboard.press("Shift+ArrowLeft");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/from=\d+&to=\d+/);
  expect(Math.abs(part() - 90)).toBeLessThan(10);

  await api.call("POST", `/sandboxes/${id}/pause`);
  await expect(events).toContainText("Paused");
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
    await page.getByRole("link", { name: "Zoom in" }).click();
    await expect(page).toHaveURL(/range=1h&from=\d+&to=\d+&table=on/);
    await page.getByRole("link", { name: "Whole time" }).click();
    await expect(page).not.toHaveURL(/from=/);
  });
});
