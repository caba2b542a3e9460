import { mkdirSync } from "node:fs";
import { expect, hydrated, logIn, test } from "./console";

const out = "/tmp/osb/shots-create";

test("shots", async ({ page, api }) => {
  test.setTimeout(300_000);
  mkdirSync(out, { recursive: true });
  const { id } = await api.create(["python3", "-m", "http.server", "8000"], { name: "search-index", team: "search" });
  const failed = await api.create(["sh", "-c", "echo the disk is on fire; exit 3"], { name: "failing-job" });
  await logIn(page, `/console/sandboxes/${id}`);
  const pages: [string, string][] = [
    ["overview", `/console/sandboxes/${id}`],
    ["failed", `/console/sandboxes/${failed.id}`],
    ["diagnostics", `/console/sandboxes/${id}/diagnostics?checks=now`],
    ["create", `/console/create?from=${id}`],
  ];
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const width of [1440, 390]) {
      await page.setViewportSize({ width, height: 900 });
      for (const [name, path] of pages) {
        await page.goto(path);
        await hydrated(page);
        if (name === "overview") {
          await expect(page.getByRole("link", { name: "Open port 8000" }).or(page.locator(".port-rows li")).first()).toBeVisible();
          await page.locator("#edit-labels").click();
          await page.getByLabel("Value of team").fill("two words");
          await page.locator("summary").filter({ hasText: "As API calls" }).click();
          await page.locator(".call summary").filter({ hasText: "Extend" }).click();
        }
        for (const text of ["Advanced", "As JSON"]) {
          const summary = page.locator("details.advanced > summary").filter({ hasText: text });
          if (name === "create" && (await summary.count())) await summary.click();
        }
        const wide = await page.evaluate(() => {
          const width = document.documentElement.clientWidth;
          return [...document.querySelectorAll("main *")]
            .filter((it) => it.getBoundingClientRect().right > width + 1 && it.checkVisibility())
            .map((it) => `${it.tagName}.${it.className} ${Math.round(it.getBoundingClientRect().right)}`)
            .slice(0, 8);
        });
        const whole = await page.evaluate(() => document.documentElement.scrollWidth);
        console.log(name, scheme, width, whole, wide.join(" | "));
        await page.screenshot({ path: `${out}/${name}-${scheme}-${width}.png`, fullPage: true });
      }
    }
  }
});
