// The list: the filter's language, actions on several rows, sandboxes that ended, and keys.

import type { Page } from "@playwright/test";
import { expect, hydrated, image, key, logIn, renew, row, tabTo, test, unique } from "./console";

const rows = (page: Page) => page.locator("table.list tbody tr");

// Nothing of the engine is tested.
test.use({ runtime: "sim" });

test("a query finds one sandbox, and a word that is not understood is named", async ({ page, api }) => {
  const one = await api.create(undefined, { name: "needle", team: "find-a" });
  const other = await api.create(undefined, { team: "find-b" });
  await logIn(page, "/console/sandboxes");
  await hydrated(page);
  const field = page.getByRole("searchbox");
  await page.keyboard.press("/");
  await expect(field).toBeFocused();
  for (const query of [
    `state:running label.team=find-a id:${one.short.slice(0, 4)}`,
    `name:need* image:*${image.split(":")[1]} ttl<1h age<1h -label.team=find-b`,
  ]) {
    await field.fill(query);
    await expect(rows(page)).toHaveCount(1);
    await expect(row(page, one)).toContainText("needle");
  }
  await field.fill("suite=browser colour:red");
  await expect(page.locator("#filter-problems")).toContainText("colour:red is left out: there is no field colour");
  await expect(row(page, other)).toBeVisible();
  await field.fill("suite=browser ttl<10x");
  await expect(page.locator("#filter-problems")).toContainText("10x is no time");
  await field.fill(`suite=browser "needle`);
  await expect(page.locator("#filter-problems")).toContainText(`"needle is read to its end: a quote is not closed`);
  await expect(rows(page)).toHaveCount(1);
  await field.fill(`suite=browser "needle"`);
  await expect(page.locator("#filter-problems")).toBeEmpty();
  await page.locator("summary").filter({ hasText: "?" }).click();
  const syntax = page.locator(".syntax .confirm-card");
  await expect(syntax).toContainText("label.team=a");
  await page.keyboard.press("Escape");
  await expect(syntax).toBeHidden();
  await page.locator("summary").filter({ hasText: "?" }).click();
  await expect(syntax).toBeVisible();
  await page.getByRole("heading", { level: 1 }).click();
  await expect(syntax).toBeHidden();
  // A click on a label filters by it.
  await field.fill(`id:${other.id}`);
  await row(page, other).getByRole("link", { name: "suite=browser" }).click();
  await expect(field).toHaveValue(`id:${other.id} label.suite=browser`);
  await expect(rows(page)).toHaveCount(1);
});

test("the field, the URL and the rows agree after Clear and after Back", async ({ page, api }) => {
  const one = await api.create(undefined, { team: "agree" });
  await logIn(page);
  await hydrated(page);
  const field = page.getByRole("searchbox");
  await field.fill("label.team=agree");
  await expect(rows(page)).toHaveCount(1);
  await field.fill("nothing-is-called-this");
  await expect(page.getByRole("heading", { name: "No matches" })).toBeVisible();
  await page.getByRole("link", { name: "Clear the filter" }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes$/);
  await expect(field).toHaveValue("");
  await expect(row(page, one)).toBeVisible();
  await page.goBack();
  await expect(field).toHaveValue("nothing-is-called-this");
  await expect(page.getByRole("heading", { name: "No matches" })).toBeVisible();
  await page.goForward();
  await expect(field).toHaveValue("");
  await expect(row(page, one)).toBeVisible();
  await page.goto("/console/sandboxes?page=99");
  await expect(page.locator("#main")).toContainText("There is no page 99");
  await expect(row(page, one)).toBeVisible();
});

test("what ended is listed with the reason and leads to its page", async ({ page, api }) => {
  const team = unique("ended");
  const gone = await api.create(undefined, { name: "was-here", team });
  await logIn(page, `/console/sandboxes?state=Ended&q=label.team%3D${team}`);
  await hydrated(page);
  await expect(row(page, gone)).toHaveCount(0);
  await api.remove(gone.id);
  await expect(row(page, gone)).toContainText("Deleted");
  await expect(row(page, gone)).toContainText("It was deleted by request.");
  await expect(page.getByRole("link", { name: /^Ended \d/ })).toHaveAttribute("aria-current", "true");
  await row(page, gone).getByRole("link", { name: "was-here" }).click();
  await expect(page.locator("#main")).toContainText("This sandbox was deleted.");
  await expect(page.locator("#main")).toContainText("tail -f /dev/null");
  await expect(page.locator("#main")).not.toContainText("Expires");
  await page.goBack();
  await expect(row(page, gone)).toBeVisible();
  await page.getByRole("link", { name: /^All/ }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes\?q=/);
  await expect(row(page, gone)).toHaveCount(0);
});

test("twenty sandboxes are extended at once with keys alone, and one that fails does not stop the others", async ({ page, api }) => {
  test.slow();
  const all = await Promise.all(Array.from({ length: 20 }, () => api.create(undefined, { team: "twenty" })));
  await logIn(page, "/console/sandboxes?q=label.team%3Dtwenty");
  await hydrated(page);
  await expect(rows(page)).toHaveCount(20);
  // The page does not learn that one is gone.
  await tabTo(page, page.getByTitle("Pause live updates"));
  await page.keyboard.press("Enter");
  await expect(page.getByTitle("Resume live updates")).toBeVisible();
  await api.remove(all[7].id);
  await expect.poll(() => api.mine()).not.toContain(all[7].id);
  await tabTo(page, page.getByLabel("Select all on this page"));
  await page.keyboard.press("Space");
  await expect(page.locator(".bulk")).toContainText("20 selected");
  await tabTo(page, page.getByLabel("New time to live"), "Shift+Tab");
  await page.keyboard.type("4");
  await expect(page.getByLabel("New time to live")).toHaveValue("14400");
  await tabTo(page, page.getByRole("button", { name: "Extend", exact: true }));
  await page.keyboard.press("Enter");
  const results = page.locator(".bulk-results");
  await expect(results).toContainText("19 of 20 extended · 1 failed");
  await expect(results.getByRole("listitem").first()).toContainText("This sandbox does not exist.");
  await expect(results.locator("summary")).toBeFocused();
  // The one that failed is read, and what was said goes away.
  await tabTo(page, results.getByRole("button", { name: "Dismiss the results" }));
  await page.keyboard.press("Enter");
  await expect(results).toBeEmpty();
  await tabTo(page, page.getByTitle("Resume live updates"), "Shift+Tab");
  await page.keyboard.press("Enter");
  await expect(rows(page)).toHaveCount(19);
  for (const line of await rows(page).all()) await expect(line).toContainText("3 h");
});

test("the time for several lengthens each life, and who lives longer is counted and skipped", async ({ page, api }) => {
  const [long, short] = [await api.create(undefined, { team: "lives" }), await api.create(undefined, { team: "lives" })];
  await renew(api, long.id, 3 * 3_600);
  await logIn(page, "/console/sandboxes?q=label.team%3Dlives");
  await hydrated(page);
  await expect(row(page, long)).toContainText("2 h");
  const bulk = page.getByRole("form", { name: "Selected sandboxes" });
  const time = bulk.getByLabel("New time to live");
  await row(page, short).getByRole("checkbox").check();
  await expect(time).toHaveValue("1800");
  await row(page, long).getByRole("checkbox").check();
  await expect(time).toHaveValue("14400");
  await time.selectOption("900");
  await expect(bulk).toContainText("1 lives longer: Extend skips it");
  await time.selectOption("3600");
  await bulk.getByRole("button", { name: "Extend", exact: true }).click();
  const results = page.locator(".bulk-results");
  await expect(results).toContainText("1 of 2 extended · 1 skipped");
  await expect(results.getByRole("listitem").first()).toContainText("it lives until");
  await expect(row(page, long)).toContainText("2 h");
  await expect(row(page, short)).toContainText("59 min");
  await results.getByRole("button", { name: "Dismiss the results" }).click();
  await expect(results).toBeEmpty();
});

test("the focus stays in the page when nothing is left to show of what was selected", async ({ page, api }) => {
  const one = await api.create(undefined, { team: unique("left") });
  await logIn(page, `/console/sandboxes?q=id:${one.id}`);
  await hydrated(page);
  await row(page, one).getByRole("checkbox").check();
  await page.getByRole("searchbox").fill("nothing-is-called-this");
  const bulk = page.getByRole("form", { name: "Selected sandboxes" });
  const extend = bulk.getByRole("button", { name: "Extend", exact: true });
  await expect(extend).toHaveAttribute("aria-haspopup", "dialog");
  await bulk.getByRole("button", { name: "Show them" }).press("Enter");
  await expect(extend).not.toHaveAttribute("aria-haspopup");
  await row(page, one).getByRole("checkbox").press("Space");
  await page.getByRole("button", { name: "Back to the list" }).press("Enter");
  await expect(page.getByRole("heading", { name: "No matches" })).toBeVisible();
  await expect(page.locator("#main")).toBeFocused();
});

test.describe("pausing, and what is in a sandbox", () => {
  // The simulated runtime has neither.
  test.use({ runtime: "docker" });

  test("keys open the tabs of the current row, and of the page while one of its rows has the focus", async ({ page, api }) => {
    const one = await api.create(undefined, { team: "tab-keys" });
    await logIn(page, "/console/sandboxes?q=label.team%3Dtab-keys");
    await hydrated(page);
    await expect(rows(page)).toHaveCount(1);
    await page.keyboard.press("?");
    const help = page.getByRole("dialog", { name: "Keyboard" });
    const tabs = { l: "logs", f: "files", m: "metrics", t: "terminal" };
    for (const [shortcut, tab] of Object.entries(tabs)) {
      await expect(help.locator("dt", { hasText: new RegExp(`^${shortcut}$`) })).toHaveCount(1);
      await expect(help).toContainText(`Its ${tab}`);
    }
    await page.keyboard.press("Escape");
    await expect(help).toBeHidden();
    // No row is current yet.
    await page.keyboard.press("l");
    await page.keyboard.press("j");
    await expect(page).toHaveURL(/team(%3D|=)tab-keys/);
    const link = page.locator("[data-row-link]");
    for (const [shortcut, tab] of Object.entries(tabs)) {
      await expect(link).toBeFocused();
      await page.keyboard.press(shortcut);
      await expect(page).toHaveURL(new RegExp(`/console/sandboxes/${one.id}/${tab}$`));
      const parts = page.getByRole("navigation", { name: "Parts of this sandbox" });
      await expect(parts.locator("[aria-current]")).toHaveText(new RegExp(tab, "i"));
      await page.goBack();
    }
    await page.goto(`/console/sandboxes/${one.id}/files`);
    await hydrated(page);
    await page.locator("tr [data-row-link]").first().focus();
    await page.keyboard.press("m");
    await expect(page).toHaveURL(new RegExp(`/console/sandboxes/${one.id}/metrics$`));
  });

  test("what is selected and not shown is counted, named and can be shown or deselected", async ({ page, api }) => {
    test.slow();
    const [seen, hidden] = [unique("seen"), unique("hidden")];
    const all = await Promise.all(Array.from({ length: 11 }, (_, at) => api.create(undefined, { name: `h-${at}`, team: hidden })));
    const one = await api.create(undefined, { name: "in-view", team: seen });
    await logIn(page, `/console/sandboxes?q=label.team%3D${hidden}`);
    await hydrated(page);
    await expect(rows(page)).toHaveCount(11);
    await page.getByLabel("Select all on this page").check();
    const bulk = page.getByRole("form", { name: "Selected sandboxes" });
    await expect(bulk).toContainText("11 selected");
    await expect(bulk).not.toContainText("not shown");
    const field = page.getByRole("searchbox");
    await field.fill("nothing-is-called-this");
    await expect(page.getByRole("heading", { name: "No matches" })).toBeVisible();
    await expect(bulk).toContainText("11 selected, 11 not shown");
    await field.fill(`label.team=${seen}`);
    await expect(rows(page)).toHaveCount(1);
    await row(page, one).getByRole("checkbox").check();
    await expect(bulk).toContainText("12 selected, 11 not shown");

    // Every action names them first; what is not shown comes first, and a no changes nothing.
    const dialog = page.getByRole("alertdialog");
    for (const act of ["Extend", "Pause", "Delete"]) {
      await bulk.getByRole("button", { name: act, exact: true }).press("Enter");
      await expect(dialog).toHaveAccessibleName(`${act} 12 sandboxes?`);
      await expect(dialog).toHaveAccessibleDescription(/11 of them are not shown in the list/);
      const named = dialog.getByRole("listitem");
      await expect(named).toHaveCount(11);
      await expect(named.filter({ hasText: "not shown" })).toHaveCount(10);
      await expect(named.last()).toHaveText("and 2 more");
      await page.keyboard.press("Escape");
      await expect(dialog).toBeHidden();
    }
    await expect(page.locator(".bulk-results")).toBeEmpty();

    // They can be looked at, and deselected, with keys alone.
    await bulk.getByRole("button", { name: "Show them" }).press("Enter");
    await expect(rows(page)).toHaveCount(12);
    await expect(bulk).not.toContainText("not shown");
    await expect(page.getByRole("button", { name: "Back to the list" })).toBeFocused();
    await row(page, all[0]).getByRole("checkbox").uncheck();
    await page.getByRole("button", { name: "Back to the list" }).press("Enter");
    await expect(rows(page)).toHaveCount(1);
    await expect(bulk).toContainText("11 selected, 10 not shown");
    await expect(bulk.getByRole("button", { name: "Show them" })).toBeFocused();
    await bulk.getByRole("button", { name: "Deselect them" }).press("Enter");
    await expect(bulk).toContainText(/\b1 selected/);
    await expect(bulk).not.toContainText("not shown");

    // What is in view is extended without a question.
    await bulk.getByRole("button", { name: "Extend", exact: true }).press("Enter");
    await expect(page.locator(".bulk-results")).toContainText("1 of 1 extended");
    // What succeeded is no longer selected.
    await row(page, one).getByRole("checkbox").check();
    await bulk.getByRole("button", { name: "Delete", exact: true }).press("Enter");
    await expect(dialog.getByRole("listitem")).toHaveText(/in-view/);
    await dialog.getByRole("button", { name: "Delete selected" }).press("Enter");
    await expect(page.locator(".bulk-results")).toContainText("1 of 1 deleted");
    await expect.poll(() => api.mine()).not.toContain(one.id);
    for (const { id } of all) expect(await api.mine()).toContain(id);
  });

  test("a viewer sees the actions of a row with the reason", async ({ page, api, sandbox }) => {
    test.skip(!key, "this server has no key");
    const added = await api.call("POST", "/api-keys", { name: "viewer-of-the-list", role: "read_only" });
    const { secret, apiKey } = (await added.json()) as { secret: string; apiKey: { id: string } };
    try {
      await page.goto("/console/login?next=/console/sandboxes");
      await page.getByLabel("API key").fill(secret);
      await page.getByRole("button", { name: "Sign in" }).click();
      await hydrated(page);
      const shown = row(page, sandbox);
      for (const name of ["Extend", "Pause", "Delete", "Clone"]) {
        const button = shown.getByRole("button", { name: `${name} ${sandbox.short}` });
        await expect(button).toHaveAttribute("aria-disabled", "true");
        await expect(button).toHaveAccessibleDescription(/Your role may look/);
        await button.press("Enter");
      }
      const head = page.locator(".page-head").getByRole("button", { name: "Create" });
      await expect(head).toHaveAttribute("aria-disabled", "true");
      await expect(head).toHaveAccessibleDescription(/Your role may look/);
      await shown.getByRole("checkbox").check();
      const bulk = page.getByRole("form", { name: "Selected sandboxes" });
      await expect(bulk).toContainText("Your role may look at sandboxes, and not change them.");
      for (const name of ["Extend", "Pause", "Resume", "Delete"]) {
        const button = bulk.getByRole("button", { name, exact: true });
        await expect(button).toHaveAttribute("aria-disabled", "true");
        await expect(button).toHaveAccessibleDescription(/Your role may look/);
        await button.press("Enter");
      }
      await bulk.getByRole("button", { name: "Clear" }).click();
      await expect(bulk).toBeHidden();
      await expect(page.getByRole("alertdialog")).toBeHidden();
      await expect(page.locator(".bulk-results")).toBeEmpty();
      await expect(shown).toContainText("Running");
    } finally {
      await api.call("DELETE", `/api-keys/${apiKey.id}`);
    }
  });

  test("a row of a sandbox that failed counts no time until an expiry", async ({ page, api }) => {
    const failed = await api.create(["sh", "-c", "exit 3"], { team: "over" });
    await logIn(page, "/console/sandboxes?q=label.team%3Dover");
    await hydrated(page);
    await expect(row(page, failed)).toContainText("Failed");
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 844 });
      const cell = row(page, failed).locator(".c-expires");
      await expect(cell).toHaveText("");
      const before = await cell.evaluate((it) => getComputedStyle(it, "::before").content);
      expect([width, before]).toEqual([width, "none"]);
    }
  });
});

test("rows are selected, extended and deleted with keys alone", async ({ page, api }) => {
  const made = [await api.create(undefined, { team: "keys" }), await api.create(undefined, { team: "keys" })];
  await logIn(page, "/console/sandboxes?q=label.team%3Dkeys&sort=-age");
  await hydrated(page);
  const links = page.locator("[data-row-link]");
  await page.keyboard.press("j");
  await expect(links.nth(0)).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(made[0].id));
  await page.goBack();
  await expect(rows(page)).toHaveCount(2);
  await page.keyboard.press("j");
  await expect(links.nth(1)).toBeFocused();
  await page.keyboard.press("x");
  await expect(page.locator(".bulk")).toContainText("1 selected");
  await expect(row(page, made[1]).getByRole("checkbox")).toBeChecked();
  await page.keyboard.press("r");
  await expect(row(page, made[1])).toContainText(/29 min|30 min/);
  await page.keyboard.press("/");
  await expect(page.getByRole("searchbox")).toBeFocused();
  await page.goto(`/console/sandboxes/${made[1].id}`);
  await hydrated(page);
  await page.keyboard.press("/");
  await expect(page).toHaveURL(/\/console\/sandboxes$/);
  await expect(page.getByRole("searchbox")).toBeFocused();
});

test("after Back, the row has the focus although the list comes late", async ({ page, api }) => {
  const one = await api.create(undefined, { team: "late-list" });
  await logIn(page, "/console/sandboxes?q=label.team%3Dlate-list");
  await hydrated(page);
  const link = page.locator("[data-row-link]");
  await page.keyboard.press("j");
  await expect(link).toBeFocused();
  let answer = () => {};
  const held = new Promise<void>((resolve) => (answer = resolve));
  await page.route("**/console/fn/sandboxes/list*", async (route) => {
    await held;
    await route.continue();
  });
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: one.short })).toBeVisible();
  await page.goBack();
  // Longer than the frame looks for a focus that was lost.
  await page.waitForTimeout(2_500);
  answer();
  await expect(link).toBeFocused();
});

test("columns are sorted by their titles, in the URL", async ({ page, api }) => {
  const b = await api.create(undefined, { name: "b-sorted", team: "sorted" });
  await api.create(undefined, { name: "a-sorted", team: "sorted" });
  await logIn(page, "/console/sandboxes?q=label.team%3Dsorted");
  await hydrated(page);
  await expect(rows(page).first()).toContainText("a-sorted");
  const title = page.getByRole("columnheader", { name: "Sandbox" });
  await title.getByRole("link").click();
  await expect(page).toHaveURL(/sort=name/);
  await expect(title).toHaveAttribute("aria-sort", "ascending");
  await title.getByRole("link").click();
  await expect(title).toHaveAttribute("aria-sort", "descending");
  await expect(rows(page).first()).toContainText(b.short);
  await page.reload();
  await hydrated(page);
  await expect(rows(page).first()).toContainText(b.short);
});

test("what ended is sorted by the titles of its columns, in the URL", async ({ page, api }) => {
  const made = [];
  const team = unique("sorted-ended");
  for (const name of ["b-gone", "a-gone"]) {
    const one = await api.create(undefined, { name, team });
    await api.remove(one.id);
    await expect.poll(async () => (await api.call("GET", `/sandboxes/${one.id}`)).status).toBe(404);
    made.push(one);
  }
  await logIn(page, `/console/sandboxes?state=Ended&q=label.team%3D${team}`);
  await hydrated(page);
  await expect(rows(page)).toHaveCount(2);
  const title = (name: string) => page.getByRole("columnheader", { name });
  await expect(title("Ended")).toHaveAttribute("aria-sort", "ascending");
  await expect(rows(page).first()).toContainText("a-gone");
  await title("Ended").getByRole("link").click();
  await expect(rows(page).first()).toContainText("b-gone");
  await title("Sandbox").getByRole("link").click();
  await expect(page).toHaveURL(/sort=name/);
  await expect(rows(page).first()).toContainText("a-gone");
  await title("Sandbox").getByRole("link").click();
  await expect(rows(page).first()).toContainText(made[0].short);
  await page.reload();
  await expect(title("Sandbox")).toHaveAttribute("aria-sort", "descending");
  await expect(rows(page).first()).toContainText("b-gone");
});

test("a sandbox that does not exist is not found", async ({ page, faults }) => {
  await logIn(page);
  const response = await page.goto("/console/sandboxes/unknown");
  expect(response!.status()).toBe(404);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("No such sandbox");
  // The browser logs the status of the page.
  expect(faults.splice(0)).toEqual([expect.stringContaining("404")]);
});

test("nothing overflows between 360 and 1024 px", async ({ page, api }) => {
  await api.create(undefined, { name: "a-rather-long-name-of-a-sandbox-of-the-team", team: "narrow" });
  await logIn(page, "/console/sandboxes?q=label.team%3Dnarrow");
  for (const width of [360, 390, 640, 768, 1024]) {
    await page.setViewportSize({ width, height: 844 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect([width, wide <= width]).toEqual([width, true]);
  }
});

for (const width of [360, 390, 480]) {
  test(`at ${width} px, all pages are in the rail, and the breadcrumb ends with this one`, async ({ page, sandbox }) => {
    await page.setViewportSize({ width, height: 800 });
    await logIn(page, `/console/sandboxes/${sandbox.id}/diagnostics`);
    await hydrated(page);
    const links = page.getByRole("navigation", { name: "Main" }).getByRole("link");
    await expect(page.getByRole("navigation", { name: "Main" }).getByRole("link", { name: "API docs" })).toBeVisible();
    // Some show an icon alone, and are read as a whole all the same.
    for (const name of ["Overview", "Sandboxes", "Settings"]) {
      await expect(links.filter({ hasText: name })).toHaveAccessibleName(name);
    }
    for (const box of await Promise.all((await links.all()).map((link) => link.boundingBox()))) {
      if (box === null) continue;
      expect(box.x).toBeGreaterThanOrEqual(0);
      expect(box.x + box.width).toBeLessThanOrEqual(width);
      expect(box.height).toBeGreaterThanOrEqual(24);
    }
    const here = page.getByRole("navigation", { name: "Breadcrumb" }).locator("[aria-current]");
    await expect(here).toHaveText("Diagnostics");
    const cut = await here.locator("..").evaluate((it) => it.scrollWidth - it.clientWidth);
    expect(cut).toBeLessThanOrEqual(0);
  });
}
