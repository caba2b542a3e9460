// Accessibility rules (axe-core, WCAG 2.2 AA and best practices) on every page in both themes.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Locator, Page } from "@playwright/test";
import { expect, hydrated, image, logIn, test } from "./console";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

type Violation = { id: string; nodes: { html: string; failureSummary: string }[] };

const THEMES = ["light", "dark"] as const;
/** The rules that look at colours. */
const OF_COLOURS = ["color-contrast", "link-in-text-block"];

/** What breaks a rule in one of the themes. The other rules see the same in both. */
async function violations(page: Page): Promise<string[]> {
  const found: string[] = [];
  for (const colorScheme of THEMES) {
    await page.emulateMedia({ colorScheme });
    // Colours that change slowly would be read on their way.
    await page.evaluate(() => {
      for (const it of document.getAnimations()) if (it instanceof CSSTransition) it.finish();
    });
    const only = colorScheme === "light" ? undefined : OF_COLOURS;
    for (const { id, nodes } of await broken(page, only)) {
      const shown = nodes.map((node) => `${colorScheme} ${id}: ${node.html}\n${node.failureSummary}`);
      found.push(...shown);
    }
  }
  return found;
}

async function broken(page: Page, only: string[] | undefined): Promise<Violation[]> {
  // Evaluated by the debugger, which is exempt from the page's Content-Security-Policy.
  if (await page.evaluate(() => !("axe" in window))) await page.evaluate(axe);
  return await page.evaluate(async (only) => {
    type Axe = { run(options: unknown): Promise<{ violations: Violation[] }> };
    const { axe } = window as unknown as { axe: Axe };
    return (await axe.run({ resultTypes: ["violations"], runOnly: only })).violations;
  }, only);
}

/** An image of one point. */
const DOT = "R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs=";
const WIDTHS = [1440, 768, 360];

test("login", async ({ page }) => {
  await page.goto("/console/login");
  expect(await violations(page)).toEqual([]);
});

test("every page", async ({ page, sandbox, api, faults }) => {
  test.setTimeout(600_000);
  const failed = await api.create(["sh", "-c", "echo no; exit 1"], { name: "named" });
  const gone = await api.create(undefined, { name: "gone" });
  await api.remove(gone.id);
  await api.run(sandbox.id, `echo ${DOT} | base64 -d > /root/dot.gif`);
  const policy = { egress: [{ action: "allow", target: "*.example.org" }] };
  const limited = await api.create(undefined, { name: "limited" }, policy);
  await api.run(limited.id, "getent hosts wanted.example || true");
  const snapshot = await api.snapshot(sandbox.id, "before the update");
  const { id: copy } = await api.createFrom(snapshot, { name: "copy" });
  const paths: string[] = [];
  if (await api.hasPools()) {
    await api.pool("of-axe", 1);
    const { id } = await api.claim("of-axe");
    paths.push("/console/pools", "/console/pools/of-axe", "/console/pools/unknown", `/console/sandboxes/${id}`);
  }
  if (await api.hasTemplates()) {
    const template = await api.template("of-axe");
    const broken = { build: { dockerfile: `FROM ${image}\nRUN echo before; exit 7` } };
    const failed = await api.template("broken", broken);
    const { id } = await api.createFromTemplate(template, { name: "from-a-template" });
    const list = "/console/templates";
    paths.push(list, `${list}/${template}`, `${list}/${failed}`, `${list}/unknown`, `/console/sandboxes/${id}`);
    paths.push(`/console/create?template=${template}`);
  }
  await logIn(page);
  for (const path of [
    "/console",
    "/console/sandboxes",
    "/console/sandboxes?q=nothing-is-called-this",
    "/console/sandboxes?q=foo:bar",
    "/console/sandboxes?state=Ended",
    "/console/create",
    `/console/create?from=${sandbox.id}`,
    `/console/create?snapshot=${snapshot}`,
    "/console/snapshots",
    "/console/snapshots?name=nothing-is-called-this",
    `/console/snapshots/${snapshot}`,
    `/console/sandboxes/${copy}`,
    `/console/sandboxes/${sandbox.id}`,
    `/console/sandboxes/${failed.id}`,
    `/console/sandboxes/${sandbox.id}/terminal`,
    `/console/sandboxes/${failed.id}/logs`,
    `/console/sandboxes/${sandbox.id}/metrics?table=on`,
    `/console/sandboxes/${sandbox.id}/run`,
    `/console/sandboxes/${sandbox.id}/preview`,
    `/console/sandboxes/${sandbox.id}/network`,
    `/console/sandboxes/${limited.id}/network?propose=denied`,
    `/console/sandboxes/${sandbox.id}/files`,
    `/console/sandboxes/${sandbox.id}/files?path=/etc/hosts`,
    `/console/sandboxes/${sandbox.id}/files?path=/etc/hosts&as=bytes`,
    `/console/sandboxes/${sandbox.id}/files?path=/root/dot.gif`,
    `/console/sandboxes/${gone.id}`,
    "/console/access",
    "/console/design",
    `/console/sandboxes/${failed.id}/diagnostics`,
    "/console/settings",
    "/console/settings?check=store",
    "/console/events",
    "/console/events?last=never&action=none",
    "/console/snapshots/unknown",
    "/console/sandboxes/unknown",
    ...paths,
  ]) {
    await page.goto(path);
    await hydrated(page);
    // The browser logs the status of a page that does not exist.
    if (path.endsWith("/unknown")) faults.splice(0);
    if (path.endsWith("/create")) {
      await page.getByRole("button", { name: "Create", exact: true }).click();
      await expect(page.locator("#image-problem")).not.toBeEmpty();
    }
    for (const summary of await page.locator("details.add > summary").all()) await summary.click();
    if (path.endsWith("/terminal")) {
      await expect(page.locator(".terminal-bar")).toContainText("Connected");
    }
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      const found = [...(wide > width ? [`${wide} px wide`] : []), ...(await violations(page))];
      expect([path, width, ...found]).toEqual([path, width]);
    }
  }
  await page.goto(`/console/sandboxes/${sandbox.id}/terminal`);
  await hydrated(page);
  await page.getByRole("button", { name: "Keep in the dock" }).click();
  const dock = page.getByRole("region", { name: "Dock" });
  await dock.getByRole("button", { name: "Further shell in this sandbox" }).click();
  await dock.getByRole("button", { name: "Side by side" }).click();
  for (const state of [0, 1]) {
    await expect(dock.locator(".terminal-state").nth(state)).toContainText("Connected");
  }
  expect(["dock", ...(await violations(page))]).toEqual(["dock"]);
});

test("what opens over a page", async ({ page, sandbox, api }) => {
  test.setTimeout(300_000);
  await api.run(sandbox.id, "mkdir -p /root/d; echo a > /root/d/a.txt");
  const here = `/console/sandboxes/${sandbox.id}`;
  const list = `/console/sandboxes?q=${sandbox.id}`;
  const press = (name: RegExp | string) => () => page.getByRole("button", { name }).first().click();
  const opened: [string, string, () => Promise<void>, Locator][] = [
    ["delete", list, press(/^Delete/), page.getByRole("alertdialog")],
    ["palette", list, () => page.keyboard.press("Control+k"), page.getByRole("option").first()],
    ["keys", list, () => page.keyboard.press("?"), page.getByRole("dialog")],
    ["syntax", list, () => page.locator(".syntax summary").click(), page.locator(".syntax .confirm-card")],
    ["selection", list, () => page.getByLabel("Select all on this page").check(), page.locator(".bulk")],
    ["event", `/console/events?sandbox=${sandbox.id}`, () => page.locator(".events summary").first().click(), page.locator(".events .confirm-card").first()],
    ["snapshot", here, press("Snapshot"), page.getByRole("dialog", { name: /^Take a snapshot of/ })],
    ["pool", "/console/pools", () => page.getByText("Add a pool").first().click(), page.getByLabel("Name", { exact: true })],
    ["template", "/console/templates", () => page.getByText("Make a template").first().click(), page.getByLabel("Name", { exact: true })],
    ["header", here, () => page.getByRole("button", { name: "Delete", exact: true }).click(), page.getByRole("alertdialog")],
    ["folder", `${here}/files?path=/root/d`, press("New folder"), page.getByLabel("Name", { exact: true }).first()],
    ["rename", `${here}/files?path=/root/d`, press(/^Rename/), page.getByLabel("Mode (octal)")],
    ["editor", `${here}/files?path=/root/d/a.txt`, press("Edit"), page.locator("textarea")],
    ["search", `${here}/terminal`, press("Search the output"), page.getByRole("searchbox", { name: "Text to find" })],
    ["rail", "/console", press("Narrow the navigation"), page.getByRole("button", { name: "Widen the navigation" })],
    ["replace", "/console/access", () => page.getByText("Make a key").click(), page.getByLabel("Name", { exact: true }).last()],
    ["limits", `${here}/run`, () => page.getByText("Directory, user, limit").click(), page.getByLabel("Directory")],
  ];
  await logIn(page);
  for (const [name, path, open, shown] of opened) {
    await page.setViewportSize({ width: 1440, height: 900 });
    await page.goto(path);
    await hydrated(page);
    if (name === "search") await expect(page.locator(".terminal-bar")).toContainText("Connected");
    await open();
    await expect(shown).toBeVisible();
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 });
      expect([name, width, ...(await violations(page))]).toEqual([name, width]);
    }
  }
});
