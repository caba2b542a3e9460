import { expect, hydrated, logIn, row, test } from "./console";
import { mkdirSync } from "node:fs";
const dir = "/tmp/osb/shots-list";
mkdirSync(dir, { recursive: true });
test("shots", async ({ page, api }) => {
  test.setTimeout(300_000);
  const one = await api.create(undefined, { name: "crawler-one", team: "search", env: "prod" });
  await api.create(["sh", "-c", "exit 3"], { name: "failed-kept" });
  const busy = await api.create(["sh", "-c", "while :; do :; done"], { name: "busy", team: "agents" });
  await api.create(["tail", "-f", "/dev/null"], {});
  const gone = await api.create(undefined, { name: "gone" });
  await api.remove(gone.id);
  await logIn(page, "/console/sandboxes");
  await hydrated(page);
  await expect(row(page, busy).locator(".c-cpu")).toContainText("%", { timeout: 60_000 });
  await page.waitForTimeout(45_000);
  for (const theme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: theme });
    for (const width of [1440, 1100, 390]) {
      await page.setViewportSize({ width, height: 800 });
      const shot = (name: string) => page.screenshot({ path: `${dir}/${name}-${theme}-${width}.png` });
      await page.goto("/console/sandboxes");
      await hydrated(page);
      if (width === 1440) await expect(row(page, busy).locator(".c-cpu")).toContainText("%");
      await shot("list");
      await page.locator("summary").filter({ hasText: "Columns" }).click();
      await shot("columns");
      await page.locator("summary").filter({ hasText: "Views" }).click();
      if (theme === "light" && width === 1440) {
        await page.getByLabel("Name of the view").fill("My sandboxes");
        await page.keyboard.press("Enter");
      }
      await shot("views");
      await page.goto("/console/sandboxes?state=Ended&sort=name");
      await hydrated(page);
      await shot("ended");
      await page.goto("/console");
      await hydrated(page);
      await shot("overview");
    }
  }
  console.log(one.id);
});
