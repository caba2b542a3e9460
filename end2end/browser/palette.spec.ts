// The palette: any sandbox, page or action from one field.

import type { Page } from "@playwright/test";
import { expect, hydrated, logIn, test } from "./console";

const field = (page: Page) => page.getByRole("combobox", { name: "Go to a sandbox, a page or an action" });

test("a sandbox is found by its name, its id and its label, and opened with keys", async ({ page, api }) => {
  const name = "<b>needle</b>";
  const one = await api.create(undefined, { team: "palette" });
  await api.call("PATCH", `/sandboxes/${one.id}/metadata`, { title: "x", name: "needle-in-hay" });
  await api.create(undefined, { team: "hay" });
  await logIn(page, "/console");
  await hydrated(page);
  for (const text of ["needle-in", one.id, "label.team=palette"]) {
    await page.keyboard.press("Control+k");
    await expect(field(page)).toBeFocused();
    await page.keyboard.type(text);
    const option = page.getByRole("option").filter({ hasText: "needle-in-hay" });
    await expect(option).toHaveAttribute("aria-selected", "true");
    await expect(page.getByRole("option")).toHaveCount(1);
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(new RegExp(`/console/sandboxes/${one.id}$`));
    await expect(field(page)).toBeHidden();
    await expect(page.locator("#main")).toBeFocused();
    await page.goBack();
  }
  await page.keyboard.press("Control+k");
  await page.keyboard.type(name);
  await expect(page.locator(".palette-note")).toContainText("Nothing matches.");
});

test("the title follows from one sandbox to another, through a page that was loaded again, and away", async ({ page, api, faults }) => {
  const [one, two] = [await api.create(undefined, { name: "one" }), await api.create(undefined, { name: "two" })];
  await logIn(page, `/console/sandboxes/${one.id}`);
  await hydrated(page);
  await expect(page).toHaveTitle(/^one · /);
  for (const [to, name] of [[two, "two"], [one, "one"], [two, "two"]] as const) {
    await page.keyboard.press("Control+k");
    await expect(field(page)).toBeFocused();
    await page.keyboard.type(to.id);
    const option = page.getByRole("option").filter({ hasText: to.short });
    await expect(option).toHaveAttribute("aria-selected", "true");
    await page.keyboard.press("Enter");
    await expect(page).toHaveTitle(new RegExp(`^${name} · `));
  }
  const main = page.getByRole("navigation", { name: "Main" });
  for (const name of ["Sandboxes", "Events", "Pools"]) {
    await main.getByRole("link", { name }).click();
    await expect(page).toHaveTitle(new RegExp(`^${name}.* · OpenSandbox$`));
  }
  await page.route("**/console/fn/sandboxes/get", async (route) => {
    await route.fulfill({ status: 503, body: "" });
    await page.unroute("**/console/fn/sandboxes/get");
  });
  await page.goBack();
  await page.goBack();
  await page.goBack();
  await expect(page).toHaveTitle(/^Sandbox · /);
  await page.getByRole("link", { name: "Retry" }).click();
  await expect(page).toHaveTitle(/^two · /);
  expect(faults.splice(0)).toEqual([expect.stringContaining("status of 503")]);
  await api.call("PATCH", `/sandboxes/${two.id}/metadata`, { name: "three" });
  await expect(page).toHaveTitle(/^three · /);
  for (const name of ["Sandboxes", "Events", "Pools"]) {
    await main.getByRole("link", { name }).click();
    await expect(page).toHaveTitle(new RegExp(`^${name}.* · OpenSandbox$`));
  }
});

test("what is typed before the palette is loaded is not lost", async ({ page, sandbox }) => {
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  await page.route(/split_palette/, async (route) => {
    await held;
    await route.continue();
  });
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("pause thos");
  await page.keyboard.press("Backspace");
  await page.keyboard.press("Backspace");
  await page.keyboard.type("is");
  release();
  await expect(field(page)).toHaveValue("pause this");
  await expect(page.locator(".palette-option[aria-selected=true]")).toContainText("Pause this sandbox");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Control+k");
  await expect(field(page)).toHaveValue("");
  // Keys of pages did nothing meanwhile.
  await expect(page).toHaveURL(new RegExp(`${sandbox.id}$`));
});

test("Enter before the palette is loaded opens what was typed", async ({ page }) => {
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  await page.route(/split_palette/, async (route) => {
    await held;
    await route.continue();
  });
  await logIn(page, "/console");
  await hydrated(page);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("setti");
  await page.keyboard.press("Enter");
  await page.keyboard.type("more");
  release();
  await expect(page).toHaveURL(/\/console\/settings$/);
  await expect(field(page)).toBeHidden();
});

test("pages, tabs and actions are chosen with arrows, and Escape gives the focus back", async ({
  page,
  sandbox,
}) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  const opener = page.getByRole("button", { name: "Go to …" });
  await opener.focus();
  await page.keyboard.press("Enter");
  await expect(field(page)).toBeFocused();
  const chosen = page.locator(".palette-option[aria-selected=true]");
  await expect(chosen).toContainText("Overview");
  // The sandboxes, which are the last, come from the server.
  await expect(page.locator(".palette-group").getByText("Sandboxes", { exact: true })).toBeVisible();
  await page.keyboard.press("ArrowDown");
  await expect(chosen).toContainText("Terminal");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowUp");
  await expect(page.locator(".palette-option").last()).toHaveAttribute("aria-selected", "true");
  await page.keyboard.press("Escape");
  await expect(field(page)).toBeHidden();
  await expect(opener).toBeFocused();

  await page.keyboard.press("Control+k");
  await page.keyboard.type("pause this");
  await expect(chosen).toContainText("Pause this sandbox");
  await page.keyboard.press("Enter");
  await expect(page.locator("main .badge").first()).toContainText("Paused");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("log");
  await expect(chosen).toContainText("Logs");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/logs$/);
});

test("in a terminal, Ctrl+K belongs to the shell", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await page.locator(".terminal .xterm").click();
  await page.keyboard.press("Control+k");
  await expect(field(page)).toBeHidden();
  await page.locator("h1").click();
  await page.keyboard.press("Control+k");
  await expect(field(page)).toBeFocused();
});

test("a server that is away is said in the palette, and pages are still offered", async ({ page, context, faults }) => {
  await logIn(page, "/console");
  await hydrated(page);
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("option").filter({ hasText: "Create a sandbox" })).toBeVisible();
  await context.setOffline(true);
  await page.keyboard.type("crea");
  await expect(page.locator(".palette-note")).toContainText("could not be searched");
  await expect(page.getByRole("option").first()).toContainText("Create a sandbox");
  await context.setOffline(false);
  faults.length = 0;
});

test("the console has its own typeface, and it is small", async ({ page }) => {
  await page.goto("/console/login");
  await expect
    .poll(() => page.evaluate(() => [...document.fonts].map((font) => `${font.family} ${font.status}`)))
    .toEqual(["Geist loaded"]);
  const size = await page.evaluate(
    () =>
      (performance.getEntriesByType("resource") as PerformanceResourceTiming[]).find(({ name }) =>
        name.endsWith(".woff2"),
      )!.encodedBodySize,
  );
  expect(size).toBeGreaterThan(0);
  expect(size).toBeLessThan(40_000);
});

test("a dialog that Escape closed opens again at once", async ({ page }) => {
  await logIn(page, "/console");
  await hydrated(page);
  // Both in one task: the browser says that a dialog was closed in a later one.
  const reopen = (key: string, ctrlKey: boolean) =>
    page.evaluate(
      async ([key, ctrlKey]) => {
        const dialog = document.querySelector<HTMLDialogElement>("dialog[open]");
        const closed = new Promise((done) => dialog?.addEventListener("close", done, { once: true }));
        dialog?.close();
        document.dispatchEvent(new KeyboardEvent("keydown", { key, ctrlKey, bubbles: true }));
        await closed;
        await new Promise((done) => setTimeout(done));
      },
      [key, ctrlKey] as const,
    );
  await page.keyboard.press("Control+k");
  await expect(field(page)).toBeFocused();
  await reopen("k", true);
  await expect(field(page)).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(field(page)).toBeHidden();

  const help = page.getByRole("dialog", { name: "Keyboard" });
  // The page learns a moment later that it was closed.
  await page.evaluate(() => new Promise((done) => setTimeout(done)));
  await page.keyboard.press("?");
  await expect(help).toBeVisible();
  await reopen("?", false);
  await expect(help).toBeVisible();
});
