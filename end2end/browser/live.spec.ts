// A server that is away for a while: pages say so, and go on by themselves when it is back.

import { SERVER_AWAY, expect, hydrated, logIn, row, test } from "./console";
import { AWAY, outages } from "./outages";

test("pages opened while the server is away heal when it is back", async ({ page, sandbox, faults }) => {
  test.setTimeout(270_000 + 5 * Number(process.env.OSB_OUTAGE_MS ?? 0));
  const server = await outages(page);
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  await page.evaluate(() => Object.assign(window, { mark: "not reloaded" }));
  const tabs = page.getByRole("navigation", { name: "Parts of this sandbox" });
  const rail = page.getByRole("navigation", { name: "Main" });
  const steps = [
    {
      open: () => tabs.getByRole("link", { name: "Logs" }).click(),
      healed: page.getByRole("region", { name: "Output" }),
    },
    {
      open: () => tabs.getByRole("link", { name: "Metrics" }).click(),
      healed: page.getByRole("heading", { name: "Memory" }),
    },
    {
      open: () => rail.getByRole("link", { name: "Sandboxes" }).click(),
      healed: row(page, sandbox),
    },
    {
      open: () => row(page, sandbox).getByRole("link").first().click(),
      healed: page.getByRole("region", { name: "Endpoints" }),
      first: true,
    },
  ];
  for (const { open, healed, first } of steps) {
    if (first) {
      await expect(row(page, sandbox)).toBeVisible();
    }
    await server.begin();
    const state = page.locator(".link-state");
    await expect(state).toHaveText(/Offline · last update .* ago · Retry/);
    await open();
    await expect(page.getByRole("alert").filter({ hasText: AWAY }).first()).toBeVisible();
    await expect(page.locator("body")).not.toContainText("TypeError");
    await server.end();
    // It connects by itself. A click may come just after that, and would pause the page.
    await hydrated(page);
    await expect(healed.first()).toBeVisible();
    await expect(page.getByText(AWAY)).toHaveCount(0);
  }
  expect(await page.evaluate(() => (window as unknown as { mark: string }).mark)).toBe("not reloaded");
  await page.close();
  for (const fault of faults.splice(0)) expect(fault).toMatch(SERVER_AWAY);
});

test("a call that fails once is repeated on a click", async ({ page, sandbox, faults }) => {
  // While it is offline, a page repeats nothing by itself.
  await page.routeWebSocket("**/console/live", (socket) => socket.close());
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await expect(page.locator(".link-state[data-state=lost]")).toBeVisible();
  let failures = 0;
  await page.route("**/console/fn/sandboxes/log*", async (route) => {
    failures += 1;
    if (failures === 1) await route.abort("connectionreset");
    else await route.fallback();
  });
  await page.getByRole("link", { name: "Logs" }).click();
  await page.getByRole("link", { name: "Retry", exact: true }).click();
  await expect(page.getByRole("region", { name: "Output" })).toBeVisible();
  await page.close();
  for (const fault of faults.splice(0)) expect(fault).toMatch(SERVER_AWAY);
});
