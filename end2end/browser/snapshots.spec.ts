// Snapshots: taken on a sandbox's page, listed, used for new sandboxes, and deleted.

import type { Page } from "@playwright/test";
import { expect, hydrated, key, logIn, tabTo, test } from "./console";

const path = "/console/snapshots";
const own = (page: Page) => page.getByRole("region", { name: "Snapshots", exact: true }).getByRole("listitem");
const line = (page: Page, name: string) =>
  page.locator("table.snapshots tbody tr").filter({ has: page.getByRole("link", { name, exact: true }) });
const action = (page: Page, name: string) =>
  page.getByRole("group", { name: "Actions" }).getByRole("button", { name, exact: true });

test.beforeEach(async ({ baseURL }) => {
  const headers = { "OPEN-SANDBOX-API-KEY": key };
  const { status } = await fetch(`${baseURL}/v1/snapshots`, { headers });
  test.skip(status === 501, "the runtime of this server has no snapshots");
  expect(status).toBe(200);
});

/** Opens a page of the console and waits until it is live. */
async function open(page: Page, address: string): Promise<void> {
  await logIn(page, address);
  await hydrated(page);
}

test("one is taken, and a sandbox created from it has its files, with keys alone", async ({ page, api }) => {
  const { id } = await api.create(undefined, { name: "origin" });
  await api.run(id, "echo of the origin > /root/kept.txt");
  await open(page, `/console/sandboxes/${id}`);
  await expect(page.getByRole("region", { name: "Snapshots", exact: true })).toContainText("None yet.");
  await page.keyboard.press("s");
  const dialog = page.getByRole("dialog");
  await expect(dialog).toHaveAccessibleName("Take a snapshot of origin");
  await expect(dialog.getByLabel("Name of the snapshot")).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();
  await tabTo(page, action(page, "Snapshot"));
  await page.keyboard.press("Enter");
  await expect(dialog.getByLabel("Name of the snapshot")).toBeFocused();
  await page.keyboard.type("before the update");
  await page.keyboard.press("Enter");
  await expect(page.locator(".toasts")).toContainText("The snapshot before the update of origin is being taken");
  await expect(dialog).toBeHidden();
  // Without a reload.
  await expect(own(page)).toHaveCount(1);
  await expect(own(page)).toContainText("Ready");
  await expect(page.locator(".page-head")).toContainText("Running");

  await tabTo(page, own(page).getByRole("link", { name: "before the update" }));
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/console\/snapshots\/[0-9a-f-]{36}$/);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("before the update");
  const snapshot = page.url().split("/").pop()!;
  const lineage = page.getByRole("region", { name: "Lineage" });
  await expect(lineage.getByRole("listitem").nth(1)).toContainText("origin");
  await expect(lineage).toContainText("No sandbox that exists was created from it.");
  const create = page.getByRole("group", { name: "Actions" }).getByRole("link", { name: "Create a sandbox" });
  await tabTo(page, create);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Create a sandbox");
  await expect(page.getByLabel("Source")).toHaveValue("snapshot");
  await expect(page.getByLabel("Snapshot", { exact: true })).toHaveValue(snapshot);
  await expect(page.getByLabel("Image")).toBeHidden();
  const code = page.getByRole("complementary", { name: "Equivalent code" });
  await expect(code).toContainText(`"snapshotId": "${snapshot}"`);
  for (const [language, part] of [
    ["osb", `--snapshot-id=${snapshot}`],
    ["Python", `snapshot_id="${snapshot}"`],
    ["TypeScript", `snapshotId: "${snapshot}"`],
  ]) {
    await code.getByRole("radio", { name: language }).check();
    await expect(code).toContainText(part);
  }
  await tabTo(page, page.getByLabel("Name", { exact: true }), "Shift+Tab");
  await page.keyboard.type("from-a-snapshot");
  await tabTo(page, page.getByLabel("Label name").last());
  await page.keyboard.type("suite");
  await tabTo(page, page.getByLabel("Value of suite"));
  await page.keyboard.type("browser");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.locator(".page-head")).toContainText("Running");
  const made = page.url().split("/").pop()!;
  expect(await api.run(made, "cat /root/kept.txt")).toContain("of the origin");
  const about = page.getByRole("region", { name: "About" });
  await expect(about.getByRole("link", { name: snapshot.slice(0, 8) })).toHaveAttribute("href", `${path}/${snapshot}`);
});

test("one in use is not deleted until its sandboxes are gone", async ({ page, api, sandbox }) => {
  const id = await api.snapshot(sandbox.id, "in-use");
  const user = await api.createFrom(id, { name: "its-user" });
  await open(page, path);
  const row = line(page, "in-use");
  await expect(row).toContainText("1 sandbox");
  await row.getByRole("link", { name: "in-use", exact: true }).focus();
  await page.keyboard.press("Delete");
  const dialog = page.getByRole("alertdialog");
  await expect(dialog).toHaveAccessibleName("Delete the snapshot in-use?");
  await expect(dialog).toContainText("still need them: its-user.");
  await tabTo(page, dialog.getByRole("button", { name: "Delete snapshot" }));
  await page.keyboard.press("Enter");
  await expect(page.locator(".toasts")).toContainText("is in use");
  await expect(page.locator(".toasts")).toContainText("Created from it: its-user.");
  await expect(row).toContainText("Deleting");
  await expect(row.getByRole("link", { name: /^Create a sandbox from in-use: It is being deleted/ })).not.toHaveAttribute("href");
  await api.remove(user.id);
  await expect.poll(() => api.mine()).not.toContain(user.id);
  await api.forget(id);
  // Without a reload.
  await expect(row).toHaveCount(0);
});

test("one that nothing uses is deleted after a question, from the list and from its page", async ({ page, api, sandbox }) => {
  const [first, second] = [await api.snapshot(sandbox.id, "first"), await api.snapshot(sandbox.id, "second")];
  await open(page, path);
  await line(page, "first").getByRole("button", { name: "Delete first" }).press("Enter");
  await page.keyboard.press("Escape");
  await expect(page.getByRole("alertdialog")).toBeHidden();
  expect(await api.stateOf(first)).toBe("Ready");
  await line(page, "first").getByRole("button", { name: "Delete first" }).press("Enter");
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete snapshot" }).click();
  await expect(page.locator(".toasts")).toContainText("The snapshot first is deleted");
  await expect(line(page, "first")).toHaveCount(0);
  expect(await api.stateOf(first)).toBeUndefined();

  await line(page, "second").getByRole("link", { name: "second", exact: true }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("second");
  await action(page, "Delete").press("Enter");
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete snapshot" }).click();
  await expect(page).toHaveURL(new RegExp(`${path}$`));
  expect(await api.stateOf(second)).toBeUndefined();
});

test("the list is filtered by state, name and sandbox, and the address has the filter", async ({ page, api, sandbox }) => {
  const other = await api.create();
  await api.snapshot(sandbox.id, "one");
  await api.snapshot(other.id, "two");
  await open(page, path);
  await expect(line(page, "one")).toHaveCount(1);
  await expect(page.locator(".snapshot-usage")).toHaveText(/^\d+ snapshots take .+ on disk/);
  await page.keyboard.press("/");
  const name = page.getByLabel("Name (all of it)");
  await expect(name).toBeFocused();
  await page.keyboard.type("two");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/name=two/);
  await expect(line(page, "two")).toHaveCount(1);
  await expect(line(page, "one")).toHaveCount(0);
  await page.getByRole("navigation", { name: "States" }).getByRole("link", { name: /^Failed/ }).click();
  await expect(page).toHaveURL(/name=two&state=Failed/);
  await expect(page.locator("#main")).toContainText("No snapshot matches this filter.");
  await page.goBack();
  await expect(line(page, "two")).toHaveCount(1);
  await page.getByRole("link", { name: "Clear", exact: true }).click();
  await expect(line(page, "one")).toHaveCount(1);

  await page.goto(`/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  await page.getByRole("link", { name: "All of this sandbox" }).click();
  await expect(page).toHaveURL(new RegExp(`sandbox=${sandbox.id}`));
  await expect(page.locator("table.snapshots tbody tr")).toHaveCount(1);
  await page.goto(`${path}?page=99`);
  await expect(page.locator("#main")).toContainText("There is no page 99.");
  // The letter of a tab of sandboxes leads nowhere from here.
  await hydrated(page);
  await page.keyboard.press("j");
  await page.keyboard.press("t");
  await expect(page).toHaveURL(/page=99/);
});

test("a viewer sees snapshots, and why nothing can be changed", async ({ page, api, sandbox }) => {
  test.skip(!key, "this server has no key");
  const id = await api.snapshot(sandbox.id, "looked-at");
  const added = await api.call("POST", "/api-keys", { name: "viewer-of-snapshots", role: "read_only" });
  const { secret, apiKey } = (await added.json()) as { secret: string; apiKey: { id: string } };
  try {
    await page.goto(`/console/login?next=${path}`);
    await page.getByLabel("API key").fill(secret);
    await page.getByRole("button", { name: "Sign in" }).click();
    await hydrated(page);
    for (const name of ["Create a sandbox from looked-at", "Delete looked-at"]) {
      const button = line(page, "looked-at").getByRole("button", { name });
      await expect(button).toHaveAttribute("aria-disabled", "true");
      await expect(button).toHaveAccessibleDescription(/Your role may look/);
      await button.press("Enter");
    }
    await line(page, "looked-at").getByRole("link", { name: "looked-at", exact: true }).click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("looked-at");
    await expect(action(page, "Delete")).toHaveAccessibleDescription(/Your role may look/);
    await action(page, "Delete").press("Enter");
    const create = page.getByRole("group", { name: "Actions" }).getByRole("link", { name: "Create a sandbox" });
    await expect(create).not.toHaveAttribute("href");
    await page.goto(`/console/sandboxes/${sandbox.id}`);
    await hydrated(page);
    await expect(action(page, "Snapshot")).toHaveAccessibleDescription(/Your role may look/);
    await page.keyboard.press("s");
    await expect(page.getByRole("dialog")).toBeHidden();
    await expect(page.getByRole("alertdialog")).toBeHidden();
    expect(await api.stateOf(id)).toBe("Ready");
  } finally {
    await api.call("DELETE", `/api-keys/${apiKey.id}`);
  }
});

test("a paused sandbox says why it has no snapshot", async ({ page, api, sandbox }) => {
  await api.call("POST", `/sandboxes/${sandbox.id}/pause`);
  await open(page, `/console/sandboxes/${sandbox.id}`);
  await expect(action(page, "Snapshot")).toHaveAccessibleDescription("It is paused: resume it first.");
  await action(page, "Snapshot").press("Enter");
  await expect(page.getByRole("dialog")).toBeHidden();
});

test("a snapshot that is gone is named at its field", async ({ page, faults }) => {
  await open(page, "/console/create?snapshot=00000000-0000-4000-8000-000000000000");
  await expect(page.getByLabel("Snapshot", { exact: true }).locator("option:checked")).toHaveText(
    "00000000, which is not listed as ready",
  );
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page.locator("#snapshot-problem")).toContainText("not found");
  await expect(page.locator("#problems").getByRole("link", { name: "Snapshot" })).toBeVisible();
  await page.getByLabel("Source").selectOption("image");
  await expect(page.getByLabel("Image")).toBeVisible();
  await expect(page.getByLabel("Snapshot", { exact: true })).toBeHidden();
  expect(faults).toEqual([]);
});

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("one is taken, read, used and deleted", async ({ page, api, sandbox }) => {
    await logIn(page, `/console/sandboxes/${sandbox.id}`);
    await page.getByLabel("Name of a new snapshot").fill("by-form");
    await page.getByRole("button", { name: "Snapshot", exact: true }).click();
    await expect(page.locator(".toasts")).toContainText("The snapshot by-form is being taken");
    const id = (await own(page).getByRole("link").getAttribute("href"))!.split("/").pop()!;
    await expect.poll(() => api.stateOf(id)).toBe("Ready");
    await page.goto(path);
    await expect(line(page, "by-form")).toContainText("Ready");
    await line(page, "by-form").getByRole("link", { name: "Create a sandbox from by-form" }).click();
    await expect(page.getByLabel("Snapshot", { exact: true })).toHaveValue(id);
    await page.getByLabel("Labels").fill("suite=browser");
    await page.getByRole("button", { name: "Create", exact: true }).click();
    await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
    await expect(page.locator(".page-head")).toContainText("Running");
    const made = page.url().split("/").pop()!;
    await page.goto(`${path}/${id}`);
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("Delete the snapshot by-form?");
    await expect(page.getByRole("main")).toContainText(`still need them: ${made.slice(0, 8)}.`);
    await page.getByRole("link", { name: "Cancel" }).click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("by-form");
    expect(await api.stateOf(id)).toBe("Ready");
    await api.remove(made);
    await expect.poll(() => api.mine()).not.toContain(made);
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByRole("button", { name: "Delete snapshot" }).click();
    await expect(page.locator(".toasts")).toContainText("The snapshot is deleted");
    expect(await api.stateOf(id)).toBeUndefined();
  });
});
