// Accessibility rules (axe-core, WCAG 2.2 AA and best practices) on every page in both themes.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "@playwright/test";
import { expect, hydrated, logIn, test } from "./console";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

type Violation = { id: string; nodes: { html: string; failureSummary: string }[] };

async function violations(page: Page): Promise<string[]> {
  // Evaluated by the debugger, which is exempt from the page's Content-Security-Policy.
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run(): Promise<{ violations: Violation[] }> } };
    return (await axe.run()).violations;
  });
  return found.flatMap(({ id, nodes }) =>
    nodes.map((node) => `${id}: ${node.html}\n${node.failureSummary}`),
  );
}

for (const colorScheme of ["light", "dark"] as const) {
  test.describe(colorScheme, () => {
    test.use({ colorScheme });

    test("login", async ({ page }) => {
      await page.goto("/console/login");
      expect(await violations(page)).toEqual([]);
    });

    test("every page", async ({ page, sandbox, api, faults }) => {
      const failed = await api.create(["sh", "-c", "echo no; exit 1"], { name: "named" });
      await logIn(page);
      for (const path of [
        "/console",
        "/console/sandboxes",
        "/console/sandboxes?q=nothing-is-called-this",
        "/console/sandboxes?q=foo:bar",
        "/console/sandboxes?state=Ended",
        "/console/create",
        `/console/create?from=${sandbox.id}`,
        `/console/sandboxes/${sandbox.id}`,
        `/console/sandboxes/${failed.id}`,
        `/console/sandboxes/${sandbox.id}/terminal`,
        `/console/sandboxes/${failed.id}/logs`,
        `/console/sandboxes/${sandbox.id}/metrics?table=on`,
        `/console/sandboxes/${sandbox.id}/run`,
        `/console/sandboxes/${sandbox.id}/preview`,
        `/console/sandboxes/${sandbox.id}/files`,
        `/console/sandboxes/${sandbox.id}/files?path=/etc/hosts`,
        "/console/access",
        `/console/sandboxes/${failed.id}/diagnostics`,
        "/console/settings",
        "/console/settings?check=store",
        "/console/events",
        "/console/events?last=never&action=none",
        "/console/sandboxes/unknown",
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
        expect([path, ...(await violations(page))]).toEqual([path]);
      }
    });
  });
}
