// The dock: shells and logs that stay below the page while pages change.

import type { Page } from "@playwright/test";
import { expect, hydrated, logIn, test } from "./console";

const dock = (page: Page) => page.getByRole("region", { name: "Dock" });
const names = (page: Page) => page.getByRole("list", { name: "Shells and logs in the dock" });
const connected = (page: Page) => expect(dock(page).locator(".terminal-state").first()).toContainText("Connected");

/** What the nth terminal of the page shows. */
function text(page: Page, nth = 0): Promise<string> {
  return page.locator(".xterm-rows").nth(nth).innerText();
}

/** Types into the nth terminal. */
async function enter(page: Page, line: string, nth = 0): Promise<void> {
  await page.locator(".xterm-helper-textarea").nth(nth).focus();
  await page.keyboard.type(line);
  await page.keyboard.press("Enter");
}

test("a shell goes into the dock, survives navigation and a reload, and returns to its page", async ({
  page,
  sandbox,
}) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await enter(page, "word=kept-$((40+2)); echo $word");
  await expect.poll(() => text(page)).toContain("kept-42");
  await page.getByRole("button", { name: "Keep in the dock" }).press("Enter");
  await connected(page);
  await expect(page.locator(".terminal-card")).toHaveCount(1);
  await expect(page.getByText("This shell is in the dock below.")).toBeVisible();
  await expect.poll(() => text(page)).toContain("kept-42");

  // Other pages do not interrupt what runs.
  await enter(page, "for i in 1 2 3 4 5 6; do echo tick-$i; sleep 0.3; done");
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Overview" }).click();
  await expect(page).toHaveURL(/\/console$/);
  await expect.poll(() => text(page)).toContain("tick-6");
  await page.reload();
  await hydrated(page);
  await connected(page);
  await enter(page, "echo after-$word");
  await expect.poll(() => text(page)).toContain("after-kept-42");

  await dock(page).getByRole("link", { name: "Show this shell on its page" }).click();
  await expect(page).toHaveURL(new RegExp(`${sandbox.id}/terminal$`));
  await expect(dock(page)).toHaveCount(0);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await enter(page, "echo here-$word");
  await expect.poll(() => text(page)).toContain("here-kept-42");
});

test("a restored dock leaves the focus to the page", async ({ page, api }) => {
  const [docked, shown] = [await api.create(), await api.create()];
  await logIn(page, `/console/sandboxes/${docked.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await page.getByRole("button", { name: "Keep in the dock" }).click();
  await connected(page);
  // What the user puts into the dock is typed in at once.
  await expect(dock(page).locator(".xterm-helper-textarea")).toBeFocused();
  const inDock = () => page.evaluate(() => document.activeElement?.closest(".dock") != null);
  for (const path of ["/console", "/console/sandboxes", "/console/create"]) {
    await page.goto(path);
    await hydrated(page);
    await connected(page);
    await expect.poll(() => text(page)).toMatch(/[$#]/);
    expect([path, await inDock()]).toEqual([path, false]);
    // A key of the page does what it does without a dock.
    await page.keyboard.press("?");
    await expect(page.getByRole("dialog", { name: "Keyboard" })).toBeVisible();
    await page.keyboard.press("Escape");
  }
  // Whichever of the two is connected first.
  for (let load = 0; load < 3; load += 1) {
    await page.goto(`/console/sandboxes/${shown.id}/terminal`);
    await hydrated(page);
    await connected(page);
    const own = page.locator("main");
    await expect(own.locator(".terminal-state")).toContainText("Connected");
    await expect(own.locator(".xterm-helper-textarea")).toBeFocused();
    await page.keyboard.type(`echo typed-${load}-here`);
    await page.keyboard.press("Enter");
    await expect(own.locator(".xterm-rows")).toContainText(`typed-${load}-here`);
    await expect(dock(page).locator(".xterm-rows")).not.toContainText("typed");
  }
  // A shell that connects again takes nothing away either.
  await page.goto("/console/sandboxes");
  await hydrated(page);
  await connected(page);
  await page.getByRole("searchbox").focus();
  await api.call("POST", `/sandboxes/${docked.id}/pause`);
  await expect(dock(page).locator(".terminal-state")).toContainText("Waiting for the sandbox");
  await api.call("POST", `/sandboxes/${docked.id}/resume`);
  await connected(page);
  await expect(page.getByRole("searchbox")).toBeFocused();
});

test("further shells are beside each other, and end when they are closed", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await page.getByRole("button", { name: "Keep in the dock" }).click();
  await connected(page);
  await dock(page).getByRole("button", { name: "Further shell in this sandbox" }).click();
  await expect(names(page).getByRole("listitem")).toHaveCount(2);
  const beside = dock(page).getByRole("button", { name: "Side by side" });
  await beside.click();
  await expect(beside).toHaveAttribute("aria-pressed", "true");
  const states = dock(page).locator(".terminal-state");
  await expect(states.nth(1)).toContainText("Connected");
  const boxes = await Promise.all([0, 1].map((nth) => page.locator(".terminal-card").nth(nth).boundingBox()));
  expect(boxes[0]!.x + boxes[0]!.width).toBeLessThanOrEqual(boxes[1]!.x + 1);
  // They are two: neither knows the other's variable.
  await enter(page, "only=first; echo set-$only", 0);
  await expect.poll(() => text(page, 0)).toContain("set-first");
  await enter(page, "echo got-[$only]-$((1+1)); echo $$ > /tmp/second; sleep 1000", 1);
  await expect.poll(() => text(page, 1)).toContain("got-[]-2");
  await enter(page, "kill -0 $(cat /tmp/second) && echo lives-$((40+2))", 0);
  await expect.poll(() => text(page, 0)).toContain("lives-42");
  await names(page).getByRole("button", { name: /^End the shell/ }).click();
  await expect(names(page).getByRole("listitem")).toHaveCount(1);
  await enter(page, "while kill -0 $(cat /tmp/second) 2> /dev/null; do sleep 0.1; done; echo ended-$((40+2))");
  await expect.poll(() => text(page)).toContain("ended-42");
  await expect(states.first()).toContainText("Connected");
});

test("a log and a shell share the dock, by keyboard alone", async ({ page, api }) => {
  const { id } = await api.create(["bash", "-c", "for i in $(seq 1 100000); do echo line $i; sleep 0.2; done"]);
  await logIn(page, `/console/sandboxes/${id}/logs`);
  await hydrated(page);
  await expect(page.locator(".log-line").first()).toBeVisible();
  await page.getByRole("button", { name: "Keep in the dock" }).press("Enter");
  const log = dock(page).getByRole("region", { name: "Output" });
  await expect(log).toContainText("line");
  // Both go on: they watch one topic.
  const last = (nth: number) => page.getByRole("region", { name: "Output" }).nth(nth).locator(".log-line").last().innerText();
  for (const nth of [0, 1]) {
    const before = await last(nth);
    await expect.poll(() => last(nth)).not.toBe(before);
  }
  await page.getByRole("link", { name: "Terminal" }).first().press("Enter");
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  const before = await last(0);
  await expect.poll(() => last(0)).not.toBe(before);
  // From the terminal to its tools, which have a way into the dock.
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.press("Control+Shift+ArrowUp");
  await expect(page.getByRole("group", { name: "Terminal tools" }).locator(":focus")).toHaveCount(1);
  const keep = page.getByRole("button", { name: "Keep in the dock" });
  for (let step = 0; step < 12 && !(await keep.evaluate((it) => it === document.activeElement)); step++) {
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Enter");
  await expect(names(page).getByRole("listitem")).toHaveCount(2);
  await connected(page);
  await expect(log).toBeHidden();
  await page.locator("#main").focus();
  await page.keyboard.press("d");
  await expect(dock(page).locator(".dock-panels")).toBeHidden();
  await page.keyboard.press("d");
  await expect(dock(page).locator(".dock-panels")).toBeVisible();
  const edge = dock(page).getByRole("separator", { name: "Height of the dock" });
  const height = async () => (await dock(page).locator(".dock-panels").boundingBox())!.height;
  const low = await height();
  await edge.press("ArrowUp");
  await expect.poll(height).toBeGreaterThan(low);
  await edge.press("Home");
  await expect.poll(height).toBeGreaterThan(low + 100);
  await expect(page.getByRole("navigation", { name: "Breadcrumb" })).toBeInViewport();
  for (const name of [/^Close the log/, /the shell goes on/]) {
    await names(page).getByRole("button", { name }).press("Enter");
  }
  await expect(dock(page)).toHaveCount(0);
});

test("a sandbox that is gone says so in the dock", async ({ page, api }) => {
  const { id } = await api.create();
  await logIn(page, `/console/sandboxes/${id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await page.getByRole("button", { name: "Keep in the dock" }).click();
  await connected(page);
  await page.goto("/console");
  await hydrated(page);
  await connected(page);
  await api.remove(id);
  await expect(dock(page).locator(".terminal-state")).toContainText("The sandbox has ended");
});

for (const width of [360, 768]) {
  test(`the dock fits into ${width} px`, async ({ page, sandbox }) => {
    await page.setViewportSize({ width, height: 800 });
    await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
    await expect(page.locator(".terminal-bar")).toContainText("Connected");
    await page.getByRole("button", { name: "Keep in the dock" }).click();
    await connected(page);
    await page.goto("/console/sandboxes");
    await hydrated(page);
    await connected(page);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
    const bar = (await dock(page).boundingBox())!;
    expect(bar.y + bar.height).toBeLessThanOrEqual(801);
    const rail = (await page.getByRole("navigation", { name: "Main" }).boundingBox())!;
    if (width === 360) expect(bar.y + bar.height).toBeLessThanOrEqual(rail.y + 1);
  });
}
