// A server that is really restarted: pages go on, with the same session.

import { SERVER_AWAY, expect, hydrated, logIn } from "./console";
import { testsWithOwn } from "./own";

const test = testsWithOwn(async () => ({ runtime: "sim" }));

test("open pages go on after a restart of the server", async ({ page, context, api, own, faults }) => {
  test.slow();
  await logIn(page, "/console/sandboxes");
  const create = await context.newPage();
  await create.goto("/console/create");
  const pages = [page, create];
  for (const open of pages) {
    await hydrated(open);
    await open.evaluate(() => Object.assign(window, { mark: "not reloaded" }));
  }
  await create.getByLabel("Name", { exact: true }).fill("typed-before");
  await own.stop();
  for (const open of pages) await expect(open.locator(".link-state")).toHaveText(/Offline/);
  await create.getByLabel("Image").fill("typed:meanwhile");
  await own.start();
  for (const open of pages) await hydrated(open);
  await expect(create.getByLabel("Name", { exact: true })).toHaveValue("typed-before");
  await expect(create.getByLabel("Image")).toHaveValue("typed:meanwhile");
  await create.getByRole("button", { name: "Create", exact: true }).click();
  await expect(create).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.getByRole("row").filter({ hasText: "typed-before" })).toContainText("Running");
  const later = await api.create(undefined, { name: "made-later" });
  await expect(page.getByRole("row").filter({ hasText: later.short })).toContainText("made-later");
  for (const open of pages) {
    expect(await open.evaluate(() => (window as unknown as { mark: string }).mark)).toBe("not reloaded");
  }
  // The browser logs each attempt to connect that failed meanwhile.
  for (const fault of faults.splice(0)) expect(fault).toMatch(SERVER_AWAY);
});
