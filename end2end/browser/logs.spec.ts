// The logs tab: following, filtering, hostile output, and much of it.

import type { Page } from "@playwright/test";
import { expect, hydrated, image, logIn, row, tabTo, test } from "./console";

const TICKS = ["bash", "-c", "i=0; while :; do i=$((i+1)); echo tick $i; echo oops $i >&2; sleep 0.1; done"];

const output = (page: Page) => page.getByRole("region", { name: "Output" });
const lines = (page: Page) => output(page).locator(".log-line");

async function open(page: Page, id: string, query = ""): Promise<void> {
  await logIn(page, `/console/sandboxes/${id}/logs`);
  if (query) await page.goto(`/console/sandboxes/${id}/logs${query}`);
  await hydrated(page);
}

/** Distance of the view from the end of the log, in pixels. */
const distance = (page: Page) =>
  output(page).evaluate((it) => it.scrollHeight - it.scrollTop - it.clientHeight);

test("a log follows its end until it is scrolled up, and again after the pill", async ({ page, api }) => {
  const { id } = await api.create(TICKS);
  await open(page, id);
  await expect(lines(page).last()).toContainText(/tick|oops/);
  await expect(output(page).locator("[data-stream=error]").last()).toContainText("oops");
  // More lines than the view has room for.
  await expect.poll(() => output(page).evaluate((it) => it.scrollHeight - it.clientHeight)).toBeGreaterThan(200);
  await expect.poll(() => distance(page)).toBeLessThan(40);
  await output(page).hover();
  const pill = page.getByRole("button", { name: /new|To the end/ });
  // A short turn, nearer to the end than what counts as the end on the way down.
  await page.mouse.wheel(0, -15);
  // The browser moves the view some frames after the event: the log has 20 lines a second.
  await expect(pill).toHaveText(/\d\d new/);
  const at = await output(page).evaluate((it) => it.scrollTop);
  await expect(pill).toHaveText(/[2-9]\d new|\d{3} new/);
  expect(await output(page).evaluate((it) => it.scrollTop)).toBe(at);
  await pill.click();
  await expect(pill).toBeHidden();
  await expect.poll(() => distance(page)).toBeLessThan(40);
});

test("the filter is a regular expression and stands in the URL", async ({ page, api }) => {
  const { id } = await api.create(TICKS);
  await open(page, id);
  await expect(lines(page).filter({ hasText: "tick 12" }).first()).toBeVisible();
  await page.keyboard.press("/");
  await page.keyboard.type("tick [0-9]*2$");
  await expect(page).toHaveURL(/q=tick/);
  await expect(lines(page).filter({ hasText: "oops" })).toHaveCount(0);
  await expect(lines(page).filter({ hasText: "tick 12" }).first()).toBeVisible();
  await expect(page.locator(".logs > .num")).toContainText(/\d+ of \d+ lines/);
  await page.reload();
  await hydrated(page);
  await expect(lines(page).filter({ hasText: "oops" })).toHaveCount(0);
  await page.getByRole("searchbox").fill("(");
  await expect(page.locator("#filter-problem")).toContainText("This is no regular expression: unterminated group.");
  await expect(page.getByRole("searchbox")).toHaveAttribute("aria-invalid", "true");
  await page.getByRole("searchbox").fill("");
  await expect(page.locator("#filter-problem")).toBeEmpty();
  await expect(lines(page).filter({ hasText: "oops" }).first()).toBeVisible();
  await page.getByLabel("Times").uncheck();
  await expect(page).toHaveURL(/times=off/);
  await expect(page.locator(".log-time").first()).toBeHidden();
});

test("the least turn of the wheel upwards stops following", async ({ page, api }) => {
  const { id } = await api.create(TICKS);
  await open(page, id);
  await expect.poll(() => output(page).evaluate((it) => it.scrollHeight - it.clientHeight)).toBeGreaterThan(200);
  await expect.poll(() => distance(page)).toBeLessThan(40);
  await output(page).hover();
  const pill = page.getByRole("button", { name: /new|To the end/ });
  for (const turn of [-1, -2, -29]) {
    await page.mouse.wheel(0, turn);
    await expect(pill).toHaveText(/[1-9]\d* new/);
    await pill.click();
    await expect(pill).toBeHidden();
    await expect.poll(() => distance(page)).toBeLessThan(40);
  }
});

test("a log is left, filtered and followed again with keys alone", async ({ page, api }) => {
  const { id } = await api.create(TICKS);
  await open(page, id);
  // Half of the lines are more than the view has room for.
  await expect.poll(() => output(page).evaluate((it) => it.scrollHeight / it.clientHeight)).toBeGreaterThan(3);
  const pill = page.getByRole("button", { name: /new|To the end/ });
  await tabTo(page, output(page));
  await page.keyboard.press("ArrowUp");
  await expect(pill).toHaveText(/[1-9]\d* new/);
  await page.keyboard.press("End");
  await expect(pill).toBeHidden();
  await page.keyboard.press("Home");
  await expect(pill).toBeVisible();
  await page.keyboard.press("/");
  await page.keyboard.type("tick");
  await expect(page).toHaveURL(/q=tick/);
  await expect(lines(page).filter({ hasText: "oops" })).toHaveCount(0);
  await expect(lines(page).first()).toContainText("tick");
  // From the filter to the outputs.
  await page.keyboard.press("Tab");
  await expect(page.getByRole("combobox", { name: "Output" })).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(page).toHaveURL(/q=tick&stream=stdout/);
  await tabTo(page, pill);
  await page.keyboard.press("Enter");
  await expect(pill).toBeHidden();
  await expect.poll(() => distance(page)).toBeLessThan(40);
});

test("a log that was left is not followed again because a filter shortens it", async ({ page, api }) => {
  // Slowly, so that the tail that a page begins with has lines of both outputs, which are two pipes.
  const pairs = "for i in {1..300}; do echo tick $i; echo oops $i >&2; sleep 0.01; done";
  const { id } = await api.create(["bash", "-c", `${pairs}; while :; do sleep 0.1; echo tick; done`]);
  await open(page, id);
  await expect.poll(() => output(page).evaluate((it) => it.scrollHeight / it.clientHeight)).toBeGreaterThan(10);
  const pill = page.getByRole("button", { name: /new|To the end/ });
  // Near the end, and below the end of what the filter leaves.
  await output(page).hover();
  await page.mouse.wheel(0, -200);
  await expect(pill).toBeVisible();
  await page.getByRole("combobox", { name: "Output" }).selectOption("Standard output");
  await expect(lines(page).filter({ hasText: "oops" })).toHaveCount(0);
  await expect(pill).toHaveText(/[1-9]\d new/);
  // What the view has room for is all seen, and its end is kept.
  await page.getByRole("searchbox").fill("tick 29[0-5]");
  await expect(lines(page)).toHaveCount(6);
  await expect(pill).toBeHidden();
});

test("the end is kept though the browser still scrolls up smoothly", async ({ page, api }) => {
  const { id } = await api.create(TICKS);
  await open(page, id);
  await expect.poll(() => output(page).evaluate((it) => it.scrollHeight - it.clientHeight)).toBeGreaterThan(800);
  const pill = page.getByRole("button", { name: /new|To the end/ });
  await output(page).focus();
  for (let turn = 0; turn < 6; turn += 1) {
    await page.keyboard.press("PageUp");
    await expect(pill).toBeVisible();
    await page.keyboard.press("End");
    await expect(pill).toBeHidden();
    await expect.poll(() => distance(page)).toBeLessThan(40);
  }
  // A key after that counts.
  await page.keyboard.press("End");
  await page.keyboard.press("PageUp");
  await expect(pill).toBeVisible();
});

test("lines are filtered by output and severity, here and in the dock", async ({ page, api }) => {
  const script = "echo plain; echo 'WARN slow' >&2; echo 'ERROR gone'; echo 'error: broken' >&2; exec tail -f /dev/null";
  const created = await api.call("POST", "/sandboxes", {
    image: { uri: image },
    entrypoint: ["bash", "-c", script],
    timeout: 900,
    resourceLimits: { cpu: "500m", memory: "256Mi" },
    metadata: { suite: "browser" },
    // execd warns of a file that it cannot read, in the same log.
    env: { EXECD_ENVS: "/etc" },
  });
  const { id } = (await created.json()) as { id: string };
  await api.run(id, "true");
  await open(page, id);
  await expect(lines(page).filter({ hasText: "environment file ignored" })).not.toHaveCount(0);
  await expect(lines(page).filter({ hasText: "plain" })).toHaveCount(1);
  const source = page.getByRole("combobox", { name: "Output" });
  const severity = page.getByRole("combobox", { name: "Severity" });
  // Two outputs have no order between them.
  const texts = () =>
    lines(page).allInnerTexts().then((all) => all.map((text) => text.replace(/^\S+\s+/, "")).sort());
  await source.selectOption("Standard error");
  await expect(page).toHaveURL(/stream=stderr/);
  await expect.poll(texts).toEqual(["WARN slow", "error: broken"]);
  await source.selectOption("All outputs");
  await severity.selectOption("Errors");
  await expect.poll(texts).toEqual(["ERROR gone", "error: broken"]);
  await severity.selectOption("Warnings, errors");
  const entryPoint = async () => (await texts()).filter((text) => !text.startsWith("{"));
  await expect.poll(entryPoint).toEqual(["ERROR gone", "WARN slow", "error: broken"]);
  await expect(lines(page).filter({ hasText: "WARN slow" })).toHaveAttribute("data-severity", "warn");
  await page.reload();
  await hydrated(page);
  await expect(severity).toHaveValue("warn");
  await expect.poll(entryPoint).toEqual(["ERROR gone", "WARN slow", "error: broken"]);
  await severity.selectOption("Any severity");
  await source.selectOption("execd");
  await expect(lines(page).first()).toHaveAttribute("data-stream", "execd");
  await expect(lines(page).filter({ hasText: /plain|WARN slow/ })).toHaveCount(0);

  await page.getByRole("button", { name: "Keep in the dock" }).click();
  const dock = page.locator(".dock");
  await expect(dock.locator(".log-line").filter({ hasText: "plain" })).toHaveCount(1);
  await dock.getByRole("searchbox").fill("slow|broken");
  await expect(dock.locator(".log-line")).toHaveCount(2);
  await dock.getByRole("combobox", { name: "Severity" }).selectOption("Errors");
  await expect(dock.locator(".log-line")).toHaveText(/broken/);
  // The page has a view of its own.
  await expect(page).toHaveURL(/stream=execd$/);
  await dock.getByRole("searchbox").fill("(");
  await expect(dock.getByRole("alert")).toContainText("This is no regular expression");
});

test("hostile output is text", async ({ page, api }) => {
  const hostile = [
    "printf '<img src=x onerror=alert(1)><script>alert(2)</script>\\n'",
    "printf '\\033[31mred\\033[0m \\033]0;title\\007\\033[2J\\033[5;5Hafter\\n'",
    "printf '\\342\\200\\256reversed\\n'",
    "printf 'one\\rtwo\\n'",
    `head -c 100000 /dev/zero | tr '\\\\0' x; echo`,
    "exec tail -f /dev/null",
  ].join("; ");
  const { id } = await api.create(["bash", "-c", hostile]);
  let dialogs = 0;
  page.on("dialog", (dialog) => {
    dialogs += 1;
    void dialog.dismiss();
  });
  await open(page, id, "?wrap=on");
  await expect(output(page)).toContainText("<img src=x onerror=alert(1)><script>alert(2)</script>");
  await expect(output(page).locator(".ansi-1")).toHaveText("red");
  await expect(output(page)).toContainText("after");
  await expect(output(page)).not.toContainText("title");
  await expect(output(page)).toContainText("\ufffdreversed");
  await expect(lines(page).filter({ hasText: "two" })).not.toContainText("one");
  expect(await output(page).locator("img, script").count()).toBe(0);
  expect(dialogs).toBe(0);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  expect(wide).toBeLessThanOrEqual(0);
});

test("while 10,000 lines a second arrive, the log is left and followed again with keys alone", async ({ page, api }) => {
  test.slow();
  // Each line has its number, and when it was written.
  const script = "n=0; while :; do for i in {1..500}; do n=$((n+1)); echo line $n at $EPOCHREALTIME; done; sleep 0.02; done";
  const flood = await api.create(["bash", "-c", script], { team: "flood-keys" });
  await logIn(page, "/console/sandboxes?q=label.team%3Dflood-keys");
  await hydrated(page);
  await expect(row(page, flood)).toContainText("Running");
  await page.keyboard.press("j");
  await expect(page.locator("[data-row-link]")).toBeFocused();
  await page.keyboard.press("l");
  await expect(page).toHaveURL(/\/logs$/);
  type Line = { number: number; at: number };
  const last = async (): Promise<Line> => {
    const text = await lines(page).last().innerText();
    const [, number, at] = /line (\d+) at ([\d.]+)/.exec(text) ?? [];
    return { number: Number(number), at: Number(at) };
  };
  const number = async () => (await last()).number;
  await expect.poll(number).toBeGreaterThan(0);
  const first = await last();
  await expect.poll(number, { timeout: 120_000 }).toBeGreaterThan(first.number + 20_000);
  const later = await last();
  const rate = (later.number - first.number) / (later.at - first.at);
  test.info().annotations.push({ type: "lines a second, by the log's own numbers", description: rate.toFixed(0) });
  expect(rate).toBeGreaterThan(0);

  const pill = page.getByRole("button", { name: /new|To the end/ });
  await expect(pill).toBeHidden();
  await tabTo(page, output(page));
  await page.keyboard.press("PageUp");
  await expect(pill).toBeVisible();
  const unseen = async () => Number(/(\d+) new/.exec(await pill.innerText())?.[1] ?? 0);
  await expect.poll(unseen).toBeGreaterThan(1_000);
  const before = await unseen();
  await expect.poll(unseen).toBeGreaterThan(before);
  // What is read stays, and the end comes back with the pill's key, or its own.
  await tabTo(page, pill);
  await page.keyboard.press("Enter");
  await expect(pill).toBeHidden();
  const followed = await number();
  await expect.poll(number).toBeGreaterThan(followed);
  await tabTo(page, output(page), "Shift+Tab");
  await page.keyboard.press("PageUp");
  await expect(pill).toBeVisible();
  await page.keyboard.press("End");
  await expect(pill).toBeHidden();
});

test("at 390 px long lines leave the filter inside the page", async ({ page, api }) => {
  const { id } = await api.create(["bash", "-c", "printf 'x%.0s' {1..900}; echo; exec tail -f /dev/null"]);
  await page.setViewportSize({ width: 390, height: 844 });
  await open(page, id);
  await expect(lines(page).first()).toContainText("xxxx");
  const { x, width } = (await page.locator(".log-bar .search").boundingBox())!;
  expect(x).toBeGreaterThanOrEqual(8);
  expect(x + width).toBeLessThanOrEqual(390 - 8);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
});

test("10,000 lines a second are followed in bounded memory", async ({ page, api }) => {
  test.slow();
  const flood = "n=0; while :; do for i in {1..500}; do n=$((n+1)); echo line $n of very many; done; sleep 0.04; done";
  const { id } = await api.create(["bash", "-c", flood]);
  await open(page, id);
  const number = async () => Number(/line (\d+)/.exec(await lines(page).last().innerText())?.[1]);
  const status = page.locator(".logs > .num");
  await expect(status).toContainText("older ones dropped", { timeout: 120_000 });
  expect(await lines(page).count()).toBeLessThan(300);
  const held = Number(/^(\d+) lines/.exec(await status.innerText())?.[1]);
  expect(held).toBeLessThanOrEqual(100_000);
  const before = await number();
  await expect.poll(number).toBeGreaterThan(before);
  expect(await distance(page)).toBeLessThan(1_000);
  // The page still answers.
  const tabs = page.getByRole("navigation", { name: "Parts of this sandbox" });
  await tabs.getByRole("link", { name: "Overview" }).click();
  await expect(page.getByRole("region", { name: "About" })).toBeVisible();
});

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("the last lines are readable and the log can be downloaded", async ({ page, api }) => {
    const { id } = await api.create(["bash", "-c", "echo hello from the entry point; exec tail -f /dev/null"]);
    await logIn(page, `/console/sandboxes/${id}/logs`);
    await expect(async () => {
      await page.reload();
      await expect(output(page)).toContainText("hello from the entry point", { timeout: 500 });
    }).toPass();
    const download = page.waitForEvent("download");
    await page.getByRole("link", { name: "Download" }).click();
    expect((await download).suggestedFilename()).toMatch(/\.log$/);
  });
});
