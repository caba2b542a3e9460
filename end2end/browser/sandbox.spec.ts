// The page of one sandbox: its header with the actions, its times, and its state.

import type { Page } from "@playwright/test";
import { expect, hydrated, image, key, logIn, renew, row, test } from "./console";

const head = (page: Page) => page.locator(".page-head");
const action = (page: Page, name: string) =>
  page.getByRole("group", { name: "Actions" }).getByRole("button", { name, exact: true });

test("the header has the name before the id, and the actions", async ({ page, api, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const sandbox = await api.create(undefined, { name: "search-index" });
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("search-index");
  await expect(page).toHaveTitle(/^search-index/);
  await expect(head(page).locator(".head-id")).toHaveText(sandbox.short);
  await head(page).getByRole("button", { name: "Copy the id" }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(sandbox.id);
  const actions = page.getByRole("group", { name: "Actions" });
  await expect(actions.getByRole("link")).toHaveText(["Terminal", "Clone"]);
  await expect(actions.getByRole("button")).toHaveText(["Extend", "Pause", "Snapshot", "Delete"]);
  for (const name of ["Extend", "Pause", "Snapshot", "Delete"]) {
    await expect(action(page, name)).not.toHaveAttribute("aria-disabled", "true");
  }
  await actions.getByRole("link", { name: "Terminal" }).click();
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  // The actions stay on every tab.
  await action(page, "Pause").click();
  await expect(head(page)).toContainText("Paused");
  await action(page, "Resume").click();
  await expect(head(page)).toContainText("Running");
});

test("a sandbox is extended, shortened after a question, and deleted with keys alone", async ({ page, sandbox, api }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  const left = page.locator(".head-fact .countdown");
  await page.getByLabel("New time to live").focus();
  // To 30 min, then to 1 h.
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Shift+Tab");
  await expect(action(page, "Extend")).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(left).toHaveText(" (in 1 h)");
  // The page may show the new expiry before the answer to the renewal.
  await expect(action(page, "Extend")).not.toHaveAttribute("aria-disabled", "true");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Home");
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("alertdialog");
  await expect(dialog).toHaveAccessibleName("Shorten its life?");
  await expect(dialog).toHaveAccessibleDescription(/in 1 h.*end it in 15 min/);
  await page.keyboard.press("Escape");
  await expect(left).toHaveText(" (in 1 h)");
  await expect(action(page, "Extend")).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(dialog).toBeVisible();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await expect(left).toHaveText(" (in 15 min)");
  // The key of the list, on the page.
  await page.keyboard.press("Delete");
  await expect(dialog).toBeVisible();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes$/);
  await expect(row(page, sandbox)).toHaveCount(0);
  await expect.poll(() => api.mine()).not.toContain(sandbox.id);
});

test("the time that is offered first lengthens the life", async ({ page, sandbox, api }) => {
  await renew(api, sandbox.id, 3_600);
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  const time = page.getByLabel("New time to live");
  const left = page.locator(".head-fact .countdown");
  await expect(time).toHaveValue("14400");
  await action(page, "Extend").press("Enter");
  await expect(left).toHaveText(" (in 4 h)");
  await expect(time).toHaveValue("86400");
  await expect(page.getByRole("alertdialog")).toBeHidden();
  // Another tab extended it meanwhile, beyond what is offered otherwise.
  await renew(api, sandbox.id, 40 * 86_400);
  await expect(left).toHaveText(/in (40 d|39 d 23 h)/);
  await expect(time.locator("option:checked")).toHaveText("to 69 d");
  await page.reload();
  await hydrated(page);
  await expect(time.locator("option:checked")).toHaveText("to 69 d");
  await time.selectOption("900");
  await action(page, "Extend").press("Enter");
  await expect(page.getByRole("alertdialog")).toHaveAccessibleName("Shorten its life?");
});

/** A bar is scrolled to whole pixels, and the last tab ends within one. */
const WHOLE = { ratio: 0.99 };

test("at 390 px the current tab is in view, and the page stays where it is", async ({ page, sandbox }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await logIn(page, `/console/sandboxes/${sandbox.id}/diagnostics`);
  await hydrated(page);
  const bar = page.getByRole("navigation", { name: "Parts of this sandbox" });
  const tab = (name: string) => bar.getByRole("link", { name });
  const place = () => page.evaluate(() => [window.scrollX, window.scrollY]);
  await expect(tab("Diagnostics")).toHaveAttribute("aria-current", "page");
  await expect(tab("Diagnostics")).toBeInViewport(WHOLE);
  await expect(tab("Overview")).not.toBeInViewport({ ratio: 1 });
  expect(await place()).toEqual([0, 0]);
  // A key opens the tab: nothing was focused in the bar.
  await page.keyboard.press("t");
  await expect(tab("Terminal")).toHaveAttribute("aria-current", "page");
  await expect(tab("Terminal")).toBeInViewport(WHOLE);
  await page.goBack();
  await expect(tab("Diagnostics")).toHaveAttribute("aria-current", "page");
  await expect(tab("Diagnostics")).toBeInViewport(WHOLE);
});

test("what a state forbids says why, and does nothing", async ({ page, api }) => {
  const failed = await api.create(["sh", "-c", "exit 3"]);
  await logIn(page, `/console/sandboxes/${failed.id}`);
  await hydrated(page);
  await expect(head(page)).toContainText("Failed· exit 3");
  await expect(head(page)).toContainText("Kept until");
  await expect(head(page)).not.toContainText("(in");
  for (const name of ["Extend", "Pause", "Snapshot"]) {
    const button = action(page, name);
    await expect(button).toHaveAttribute("aria-disabled", "true");
    await expect(button).toHaveAccessibleDescription("It failed and does not run any more.");
    await button.focus();
    await expect(button).toBeFocused();
    await page.keyboard.press("Enter");
  }
  await expect(page.locator(".toast")).toHaveCount(0);
  const terminal = page.getByRole("group", { name: "Actions" }).getByRole("link", { name: "Terminal" });
  await expect(terminal).toHaveAccessibleDescription(/does not run/);
  await expect(terminal).not.toHaveAttribute("href");
  await expect(action(page, "Delete")).not.toHaveAttribute("aria-disabled", "true");
  await api.remove(failed.id);
  await expect(page.locator("#main")).toContainText("This sandbox was deleted.");
  await expect(action(page, "Delete")).toHaveAccessibleDescription("This sandbox is gone.");
  await expect(head(page)).not.toContainText("Kept until");
});

test("a sandbox is cloned from its page, from the palette, and after its end, without its values", async ({ page, api }) => {
  const answer = await api.call("POST", "/sandboxes", {
    image: { uri: image },
    entrypoint: ["tail", "-f", "/dev/null"],
    timeout: 900,
    resourceLimits: { cpu: "500m", memory: "256Mi" },
    env: { SECRET_WORD: "xyzzy-plugh" },
    metadata: { suite: "browser", name: "origin-of-copies" },
  });
  const { id } = (await answer.json()) as { id: string };
  const clone = page.getByRole("group", { name: "Actions" }).getByRole("link", { name: "Clone" });
  const opened = async () => {
    await expect(page).toHaveURL(new RegExp(`/console/create\\?from=${id}`));
    await expect(page.getByLabel("Name", { exact: true })).toHaveValue("origin-of-copies-copy");
    await expect(page.locator(".copy-note")).toContainText("origin-of-copies");
    await expect(page.locator(".kept")).toContainText("SECRET_WORD");
    expect(await page.content()).not.toContain("xyzzy-plugh");
  };
  await logIn(page, `/console/sandboxes/${id}`);
  await hydrated(page);
  await clone.focus();
  await page.keyboard.press("Enter");
  await opened();
  await page.goto(`/console/sandboxes/${id}`);
  await hydrated(page);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("clone this");
  await page.keyboard.press("Enter");
  await opened();
  await api.remove(id);
  await page.goto(`/console/sandboxes/${id}`);
  await expect(page.locator("#main")).toContainText("This sandbox was deleted.");
  await clone.click();
  await expect(page).toHaveURL(new RegExp(`/console/create\\?from=${id}`));
  await expect(page.getByLabel("Name", { exact: true })).toHaveValue("origin-of-copies-copy");
});

test("a viewer sees the actions with the reason", async ({ page, api, sandbox }) => {
  test.skip(!key, "this server has no key");
  const added = await api.call("POST", "/api-keys", { name: "viewer", role: "read_only" });
  const { secret, apiKey } = (await added.json()) as { secret: string; apiKey: { id: string } };
  try {
    await page.goto(`/console/login?next=/console/sandboxes/${sandbox.id}`);
    await page.getByLabel("API key").fill(secret);
    await page.getByRole("button", { name: "Sign in" }).click();
    await hydrated(page);
    for (const name of ["Extend", "Pause", "Snapshot", "Delete"]) {
      await expect(action(page, name)).toHaveAttribute("aria-disabled", "true");
      await expect(action(page, name)).toHaveAccessibleDescription(/Your role may look/);
      await action(page, name).click({ force: true });
    }
    await expect(page.getByRole("alertdialog")).toBeHidden();
    await expect(head(page)).toContainText("Running");
  } finally {
    await api.call("DELETE", `/api-keys/${apiKey.id}`);
  }
});

test.describe("in another time zone", () => {
  test.use({ timezoneId: "Asia/Kolkata" });

  test("times are local, with UTC on hover", async ({ page, sandbox, api }) => {
    const answer = await api.call("GET", `/sandboxes/${sandbox.id}`);
    const { createdAt, expiresAt } = (await answer.json()) as { createdAt: string; expiresAt: string };
    await logIn(page, `/console/sandboxes/${sandbox.id}`);
    await hydrated(page);
    const local = (text: string) => new Date(Date.parse(text) + 330 * 60_000).toISOString();
    const created = page.locator(`.facts time[datetime="${createdAt}"]`).first();
    await expect(created).toHaveText(local(createdAt).slice(0, 19).replace("T", " "));
    await expect(created).toHaveAttribute("title", `${createdAt.slice(0, 19).replace("T", " ")} UTC`);
    const expires = page.locator(".head-fact time").first();
    await expect(expires).toContainText(local(expiresAt).slice(11, 16));
    await expect(expires).toHaveAttribute("title", /UTC$/);
    await expect(page.locator(".head-fact")).toHaveText(/^Expires .*\d\d:\d\d \(in 15 min\)$/);
  });
});

test("a running sandbox has its state in one line, with the stages on demand", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  const line = page.locator(".state-line");
  await expect(line).toContainText(/Running since \d\d:\d\d/);
  await expect(line).toContainText(/Ready after [\d.]+ m?s/);
  const stages = page.getByRole("list", { name: "Stages" });
  await expect(stages).toBeHidden();
  await line.locator("summary").focus();
  await page.keyboard.press("Enter");
  await expect(stages).toBeVisible();
  const bars = stages.locator("rect");
  // Each stage after the first has a time, and begins where the one before ended.
  await expect(bars).toHaveCount(5);
  const places = await bars.evaluateAll((all) => all.map((it) => Number(it.getAttribute("x"))));
  expect([...places].sort((a, b) => a - b)).toEqual(places);
});

test("the page does not overflow between 360 and 1440 px", async ({ page, api }) => {
  const words = ["sh", "-c", `: ${"long ".repeat(40)} ${"x".repeat(200)}; exec tail -f /dev/null`];
  const { id } = await api.create(words, { name: `a-long-name-${"of-a-sandbox-".repeat(3)}1` });
  await logIn(page, `/console/sandboxes/${id}`);
  await hydrated(page);
  await expect(page.locator(".entrypoint")).toContainText(`sh -c ': long`);
  for (const width of [360, 390, 768, 1024, 1440]) {
    await page.setViewportSize({ width, height: 844 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect([width, wide <= width]).toEqual([width, true]);
  }
});

test("labels are changed in a form, with what is wrong beside each row", async ({ page, api }) => {
  const { id } = await api.create(undefined, { name: "before", team: "a", old: "1" });
  await logIn(page, `/console/sandboxes/${id}`);
  await hydrated(page);
  const labels = page.locator(".own-labels");
  await labels.locator("summary").focus();
  await page.keyboard.press("Enter");
  // The name is first, and its own name cannot be changed.
  await expect(labels.getByLabel("Label name").first()).toHaveValue("name");
  await expect(labels.getByLabel("Label name").first()).toHaveAttribute("readonly");
  await labels.getByLabel("Value of name").focus();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("two words");
  const problem = labels.locator("#label-problem-0");
  await expect(problem).toContainText("A value is empty, or 1 to 63");
  await expect(labels.getByLabel("Value of name")).toHaveAccessibleDescription(/A value is empty/);
  await page.keyboard.press("Enter");
  await expect(labels.locator("details")).toHaveAttribute("open");
  await expect(labels.getByLabel("Value of name")).toBeFocused();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("after");
  await expect(problem).toBeEmpty();
  await labels.getByRole("button", { name: "Delete old" }).press("Enter");
  const added = labels.locator(".label-row").nth(4);
  await added.getByLabel("Label name").fill("team");
  await added.getByLabel("Value of team").fill("b");
  await expect(added.locator(".problem")).toContainText("There is another label team.");
  await added.getByLabel("Label name").fill("example.com/owner");
  await expect(added.locator(".problem")).toBeEmpty();
  // What another client sets meanwhile stays.
  await api.call("PATCH", `/sandboxes/${id}/metadata`, { "by-api": "1" });
  await labels.getByRole("button", { name: "Save labels" }).press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("after");
  await expect(page.locator(".toast")).toContainText("labels saved");
  await expect(labels.locator("summary")).toBeFocused();
  await expect(labels.locator(".labels")).toHaveText(/by-api=1.*example.com\/owner=b.*name=after.*suite=browser.*team=a/);
  await expect(labels.locator(".labels")).not.toContainText("old=1");
  await expect(page.getByRole("navigation", { name: "Breadcrumb" })).toContainText("after");
  // Opened again, it has what is now.
  await page.keyboard.press("Enter");
  await expect(labels.getByLabel("Value of name")).toHaveValue("after");
  await expect(labels.getByLabel("Value of by-api")).toHaveValue("1");
  await labels.getByLabel("Value of by-api").fill("2");
  await labels.getByRole("button", { name: "Cancel" }).press("Enter");
  await page.keyboard.press("Enter");
  await expect(labels.getByLabel("Value of by-api")).toHaveValue("1");
});

test("each act is there as a call in four languages", async ({ page, api, baseURL }) => {
  const { id } = await api.create(undefined, { name: "as-calls" });
  await logIn(page, `/console/sandboxes/${id}`);
  await hydrated(page);
  const calls = page.locator("details").filter({ has: page.getByRole("heading", { name: "As API calls" }) }).last();
  await calls.locator("summary").first().press("Enter");
  const parts = {
    Extend: [`${baseURL}/v1/sandboxes/${id}/renew-expiration`, `renew ${id} --timeout 30m`, "renew_sandbox", "renewSandbox"],
    "Change labels": ["-X PATCH", "use curl or an SDK", "patch_sandbox_metadata", "patchSandboxMetadata"],
    Delete: ["-X DELETE", `kill ${id}`, "kill_sandbox", "killSandbox"],
    Clone: ["as-calls", "sandbox create", "Sandbox.create", "Sandbox.create"],
  };
  for (const [title, texts] of Object.entries(parts)) {
    const call = calls.locator("details.call").filter({ has: page.getByText(title, { exact: true }) });
    await call.locator("summary").press("Enter");
    await expect(calls.locator("details.call[open]")).toHaveCount(1);
    await call.getByRole("radio", { name: "curl" }).focus();
    for (const text of texts) {
      await expect(call.locator("pre:visible")).toHaveCount(1);
      await expect(call.locator("pre:visible")).toContainText(text);
      await page.keyboard.press("ArrowRight");
    }
  }
});

test("the latest events are listed, with a way to all of them", async ({ page, api }) => {
  const { id } = await api.create();
  await logIn(page, `/console/sandboxes/${id}`);
  await hydrated(page);
  const latest = page.getByRole("region", { name: "Latest events" });
  await expect(latest.getByRole("listitem").filter({ hasText: "Created" })).toHaveCount(1);
  await expect(latest.getByRole("listitem").filter({ hasText: "Started" })).toContainText(/Ready after/);
  await action(page, "Pause").click();
  await expect(latest.getByRole("listitem").first()).toContainText("Paused");
  await action(page, "Resume").click();
  await expect(latest.getByRole("listitem").first()).toContainText("Resumed");
  await latest.getByRole("link", { name: "All in Events & audit" }).press("Enter");
  await expect(page).toHaveURL(new RegExp(`/console/events\\?sandbox=${id}`));
  await expect(page.locator("main")).toContainText("sandbox.resume");
});
