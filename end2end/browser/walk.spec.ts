// A walk through the pages while calls fail: nothing that a page leaves behind stops the console.

import type { Page } from "@playwright/test";
import { expect, hydrated, logIn, test } from "./console";

const PAGES = ["Overview", "Sandboxes", "Create", "Snapshots", "Pools", "Templates", "Events", "Access", "Settings"];
const TABS = ["Overview", "Terminal", "Run", "Files", "Logs", "Metrics", "Network", "Diagnosis"];

/** Numbers below a bound that look random, and are the same in each run. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return Math.floor((state / 2 ** 31) * below);
  };
}

const link = (page: Page, part: string, name: string) =>
  page.getByRole("navigation", { name: part }).getByRole("link", { name, exact: true });

test("a walk through the pages while calls fail", async ({ page, api, faults }) => {
  const [next, calls] = [numbers(1), numbers(2)];
  const ids = [(await api.create()).id, (await api.create()).id, "none"];
  await logIn(page, "/console/sandboxes");
  await hydrated(page);
  await page.route("**/console/fn/**", (route) =>
    calls(4) === 0 ? route.fulfill({ status: 503, body: "" }) : route.continue(),
  );
  const moves = [
    () => link(page, "Main", PAGES[next(PAGES.length)]).click(),
    async () => {
      const tab = link(page, "Parts of this sandbox", TABS[next(TABS.length)]);
      if (await tab.isVisible()) await tab.click();
    },
    async () => {
      await page.goBack();
      if (page.url() === "about:blank") await page.goForward();
    },
    () => page.goForward(),
    async () => {
      await page.keyboard.press("Control+k");
      await page.keyboard.type(ids[next(ids.length)]);
      if (next(4)) await page.keyboard.press("Enter");
      await page.keyboard.press("Escape");
    },
    // Calls that failed are repeated after three seconds.
    () => page.waitForTimeout(next(4_000)),
  ];
  for (let step = 0; step < 50; step += 1) {
    await moves[next(moves.length)]();
    await page.waitForTimeout(next(200));
  }
  for (const fault of faults.splice(0)) expect(fault).toMatch(/status of (503|404)/);
  await page.unroute("**/console/fn/**");
  await link(page, "Main", "Events").click();
  await expect(page).toHaveTitle(/^Events/);
});
