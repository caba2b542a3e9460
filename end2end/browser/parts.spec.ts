// Parts of the console whose code is loaded when they are first shown.

import type { Page } from "@playwright/test";
import { expect, hydrated, logIn, row, test } from "./console";

const terminalFile = /\/pkg\/split_terminal\.wasm$/;
const createFile = /\/pkg\/split_create\.wasm$/;

/**
 * Names of the parts whose files this page gets, and of vendored scripts, once each: Chromium breaks
 * requests off while the machine's networks change, also after the answer has come, and the console
 * repeats them.
 */
function requested(page: Page): string[] {
  const names: string[] = [];
  page.on("requestfinished", (request) => {
    const file = /\/pkg\/split_(\w+)\.wasm$|\/vendor\/([a-z][a-z\d-]*?)-[\d.]+\.mjs$/.exec(request.url());
    const name = file?.[1] ?? file?.[2];
    if (name && !names.includes(name)) names.push(name);
  });
  return names;
}

test("the code of a part is requested when the part is first shown, and only then", async ({
  page,
  sandbox,
}) => {
  await logIn(page);
  const all = requested(page);
  // A page requests the part with the palette on its own, when it has settled.
  const parts = () => all.filter((name) => name !== "palette");
  await page.goto("/console/sandboxes");
  await hydrated(page);
  await row(page, sandbox).getByRole("link").first().click();
  await expect(page.locator(".page-head")).toContainText("Running");
  await expect.poll(parts).toEqual(["sandbox"]);

  const tabs = page.getByRole("navigation", { name: "Parts of this sandbox" });
  await tabs.getByRole("link", { name: "Terminal" }).click();
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await tabs.getByRole("link", { name: "Overview" }).click();
  await expect(page.locator(".terminal-bar")).toHaveCount(0);
  await tabs.getByRole("link", { name: "Terminal" }).click();
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  const addons = ["fit", "web-links", "unicode11"].map((name) => `xterm-addon-${name}`);
  await expect.poll(parts).toEqual(["sandbox", "terminal", "xterm", ...addons]);
});

test("a part that the server rendered is taken over as it is", async ({ page }) => {
  await logIn(page);
  // Before any script of the page runs.
  await page.addInitScript(() => {
    document.addEventListener("readystatechange", () => {
      if (document.readyState !== "interactive") return;
      document.querySelector("#main form")!.setAttribute("data-from", "the server");
    });
  });
  await page.goto("/console/create");
  await hydrated(page);
  const form = page.locator("#main form");
  await expect(form).toHaveAttribute("data-from", "the server");
  // The code beside the form follows what is typed, so the form is live.
  await page.getByLabel("Image").fill("of-this-test:1");
  await expect(page.locator(".mirror")).toContainText("of-this-test:1");
});

test("a part that cannot be loaded says so, and loads on request", async ({
  page,
  sandbox,
  faults,
}) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  await page.route(terminalFile, (route) => route.abort());
  const tabs = page.getByRole("navigation", { name: "Parts of this sandbox" });
  await tabs.getByRole("link", { name: "Terminal" }).click();
  const notice = page.getByRole("alert").filter({ hasText: "could not be loaded" });
  await expect(notice).toBeVisible();
  // The rest of the page works.
  await tabs.getByRole("link", { name: "Overview" }).click();
  await expect(page.getByRole("region", { name: "About" })).toBeVisible();

  // After an update of the server, the files of this page are gone.
  await page.unroute(terminalFile);
  await page.route(terminalFile, (route) => route.fulfill({ status: 404 }));
  await tabs.getByRole("link", { name: "Terminal" }).click();
  await expect(notice).toBeVisible();
  await page.unroute(terminalFile);
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  expect(faults.splice(0)).not.toEqual([]);
});

test("a request for the script that breaks off is repeated", async ({ page, faults }) => {
  await logIn(page);
  let broken = 0;
  await page.route(/osb_bg\.wasm|split_create\.wasm/, (route) =>
    ++broken <= 3 ? route.abort("connectionreset") : route.continue(),
  );
  await page.goto("/console/create");
  await hydrated(page);
  expect(broken).toBeGreaterThan(3);
  expect(faults.splice(0)).not.toEqual([]);
});

test("a page whose part cannot be loaded works as without script", async ({ page, faults }) => {
  await logIn(page);
  await page.route(createFile, (route) => route.abort());
  await page.goto("/console/create");
  const notice = page.locator(".not-live");
  await expect(notice).toBeVisible();
  await expect(page.getByLabel("Image")).toBeVisible();
  expect(faults.splice(0)).not.toEqual([]);

  await page.unroute(createFile);
  await notice.getByRole("link", { name: "Reload the page" }).click();
  await hydrated(page);
  await expect(notice).toBeHidden();
});
