// Uploads go on when the tab that began them is left, and say how they end.

import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page, Route } from "@playwright/test";
import { expect, hydrated, key, test } from "./console";
import { entry, open, withFiles } from "./files";

const state = (page: Page) => page.locator(".upload-state");
const toasts = (page: Page) => page.locator(".toasts");
const tab = (page: Page, name: string) =>
  page.getByRole("navigation", { name: "Parts of this sandbox" }).getByRole("link", { name });

/** Files of this machine, each with its name as its text. */
function local(...names: string[]): string[] {
  const folder = mkdtempSync(join(tmpdir(), "osb-uploads-"));
  return names.map((name) => {
    writeFileSync(join(folder, name), `mine: ${name}\n`);
    return join(folder, name);
  });
}

/** Holds the requests for an address until they are let go. */
async function hold(page: Page, address: string | RegExp): Promise<Route[]> {
  const held: Route[] = [];
  await page.route(address, (route) => void held.push(route));
  return held;
}

const UPLOADS = /\/files\/upload\?/;

test("an upload goes on when its tab is left, and the browser asks before the page is closed", async ({ page, api }) => {
  const { id } = await withFiles(api, "true");
  await open(page, id);
  const sent = await hold(page, UPLOADS);
  await page.getByLabel("Files to upload").setInputFiles(local("one.txt", "two.txt"));
  await expect.poll(() => sent.length).toBe(1);
  await expect(state(page)).toContainText("0 of 2 files");
  // Another tab of the sandbox, then another page.
  await tab(page, "Run").click();
  await expect(page.getByRole("heading", { name: "What ran here" })).toBeVisible();
  await expect(state(page)).toHaveCount(0);
  await page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "Overview" }).click();
  await expect(page).toHaveURL(/\/console$/);
  await sent[0].continue();
  await expect.poll(() => sent.length).toBe(2);
  const asked = page.waitForEvent("dialog");
  await page.evaluate(() => void setTimeout(() => location.reload()));
  const question = await asked;
  expect(question.type()).toBe("beforeunload");
  await question.dismiss();
  // Its state is shown on return, also in another folder.
  await page.goBack();
  await tab(page, "Files").click();
  await expect(state(page)).toContainText("To /root:");
  await expect(state(page)).toContainText("1 of 2 files");
  // A second one does not begin.
  await page.getByLabel("Files to upload").setInputFiles(local("three.txt"));
  await expect(toasts(page)).toContainText("An upload is under way.");
  await tab(page, "Logs").click();
  await sent[1].continue();
  await expect(toasts(page)).toContainText("Uploaded 2 files to /root");
  expect(await api.run(id, "cat /root/one.txt /root/two.txt")).toContain("mine: two.txt");
  // Nothing is asked any more: the question would hold the reload up.
  await page.reload();
  await hydrated(page);
});

test("a folder that is shown again has what was uploaded meanwhile", async ({ page, api }) => {
  const { id } = await withFiles(api, "true");
  await open(page, id);
  const sent = await hold(page, UPLOADS);
  await page.getByLabel("Files to upload").setInputFiles(local("one.txt"));
  await expect.poll(() => sent.length).toBe(1);
  await tab(page, "Run").click();
  await page.goBack();
  await expect(entry(page, "ready")).toBeVisible();
  await expect(entry(page, "one.txt")).toHaveCount(0);
  await sent[0].continue();
  await expect(entry(page, "one.txt")).toBeVisible();
  await expect(state(page)).toHaveCount(0);
});

test("files that exist are asked about when the tab is shown again", async ({ page, api }) => {
  const { id } = await withFiles(api, "echo theirs > one.txt");
  await open(page, id);
  const asked = await hold(page, "**/console/fn/files/taken");
  await page.getByLabel("Files to upload").setInputFiles(local("one.txt"));
  await expect.poll(() => asked.length).toBe(1);
  await tab(page, "Run").click();
  await expect(page.getByRole("heading", { name: "What ran here" })).toBeVisible();
  await asked[0].continue();
  await expect(toasts(page)).toContainText("Some files exist already in /root.");
  await tab(page, "Files").click();
  const question = page.getByRole("alertdialog", { name: "A file exists already" });
  await expect(question).toContainText(`In /root of sandbox ${id.slice(0, 8)} are:`);
  await question.getByRole("button", { name: "Replace them" }).click();
  await expect(toasts(page)).toContainText("Uploaded 1 file to /root");
  expect(await api.run(id, "cat /root/one.txt")).toContain("mine: one.txt");
});

test("an upload to a sandbox that was deleted ends with the reason", async ({ page, api, faults }) => {
  const { id } = await withFiles(api, "true");
  await open(page, id);
  const sent = await hold(page, UPLOADS);
  await page.getByLabel("Files to upload").setInputFiles(local("one.txt"));
  await expect.poll(() => sent.length).toBe(1);
  await tab(page, "Overview").click();
  await api.remove(id);
  await expect(page.locator("#main")).toContainText("Its last known state is shown below.");
  await sent[0].continue();
  await expect(toasts(page)).toContainText("one.txt was not uploaded: The sandbox is gone.");
  // The browser logs a request that is refused.
  for (const fault of faults.splice(0)) expect(fault).toContain("404");
});

test("an upload whose session ends says so", async ({ page, api, context, faults }) => {
  test.skip(!key, "this server has no key");
  const { id } = await withFiles(api, "true");
  await open(page, id);
  const sent = await hold(page, UPLOADS);
  await page.getByLabel("Files to upload").setInputFiles(local("one.txt", "two.txt"));
  await expect.poll(() => sent.length).toBe(1);
  const other = await context.newPage();
  await other.goto("/console/sandboxes");
  await other.getByRole("button", { name: "Log out" }).click();
  await expect(other).toHaveURL(/\/console\/login/);
  await other.close();
  await sent[0].continue();
  await expect(toasts(page)).toContainText("one.txt was not uploaded: You are signed out.");
  await expect(state(page)).toHaveCount(0);
  for (const fault of faults.splice(0)) expect(fault).toContain("401");
});
