// An operator's daily work: log in, create a sandbox, see it in every tab, renew it, delete it.

import { expect, hydrated, image, key, logIn, row, tabTo, test } from "./console";

test("a wrong key is refused, the right one opens, logging out closes", async ({ page }) => {
  test.skip(!key, "this server has no key");
  await page.goto("/console/sandboxes");
  await expect(page).toHaveURL(/\/console\/login\?next=/);
  await page.getByLabel("API key").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toContainText("not a key of this server");
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes$/);
  await page.getByRole("button", { name: "Log out" }).click();
  await expect(page).toHaveURL(/\/console\/login/);
  await page.goto("/console/create");
  await expect(page).toHaveURL(/\/console\/login/);
});

test("the first sign-in needs no pointer", async ({ page }) => {
  test.skip(!key, "this server has no key");
  await page.goto("/console");
  await tabTo(page, page.getByLabel("API key"));
  await page.keyboard.type(key);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Overview");
  await hydrated(page);
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to content" })).toBeFocused();
  await page.keyboard.press("Enter");
  await tabTo(page, page.locator("#main").getByRole("link").first());
});

test("a sandbox created in one tab appears in another without a reload", async ({
  page,
  context,
  api,
}) => {
  await logIn(page);
  const other = await context.newPage();
  await other.goto("/console/sandboxes?q=browser");
  await hydrated(other);
  await other.evaluate(() => Object.assign(window, { mark: "not reloaded" }));

  await page.getByRole("link", { name: "Create", exact: true }).first().click();
  await hydrated(page);
  await page.getByLabel("Image").fill(image);
  await page.getByLabel("Memory").fill("256Mi");
  await page.getByLabel("Label name").fill("suite");
  await page.getByLabel("Value of suite").fill("browser");
  await expect(page.locator(".mirror")).toContainText("suite");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  const id = page.url().split("/").pop()!;
  const sandbox = { id, short: id.slice(0, 8) };

  await expect(row(other, sandbox)).toContainText("Running");
  expect(await other.evaluate(() => (window as unknown as { mark: string }).mark)).toBe("not reloaded");

  await expect(page.locator(".stages")).toContainText("execd");
  const left = page.locator(".head-fact .countdown");
  await page.getByLabel("New time to live").selectOption("86400");
  await page.getByRole("button", { name: "Extend" }).click();
  await expect(left).toHaveText(" (in 1 d)");

  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("button", { name: "Delete sandbox" }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes$/);
  await expect(row(other, sandbox)).toHaveCount(0);
  expect(await api.mine()).not.toContain(id);
});

test("a sandbox is paused on its page and resumed in the list, seen in both at once", async ({
  page,
  context,
  sandbox,
}) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  const list = await context.newPage();
  await list.goto(`/console/sandboxes?q=${sandbox.id}`);
  await hydrated(list);

  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await expect(page.locator(".page-head")).toContainText("Paused");
  await expect(page.getByRole("region", { name: "State" })).toContainText("CONTAINER_PAUSED");
  await expect(page.getByRole("link", { name: "Terminal" }).first()).toHaveAccessibleDescription(/resume it first/);
  await expect(row(list, sandbox)).toContainText("Paused");

  await list.getByRole("button", { name: `Resume ${sandbox.short}` }).click();
  await expect(row(list, sandbox)).toContainText("Running");
  await expect(page.locator(".page-head")).toContainText("Running");
  await expect(page.getByRole("button", { name: "Pause", exact: true })).toBeEnabled();
});

test("a create that fails shows the failed stage and the reason", async ({ page }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  await page.getByLabel("Image").fill("no-such-registry.invalid/no/such:image");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.locator(".page-head")).toContainText("Failed");
  const stages = page.getByRole("list", { name: "Stages" });
  await expect(stages.locator("[data-state=failed]")).toContainText("image");
  await expect(page.locator("#main")).toContainText("no-such-registry.invalid/no/such:image cannot be pulled");
});

test("the filter stands in the URL and keys move through the list", async ({ page, api }) => {
  const first = await api.create(undefined, { which: "first" });
  const second = await api.create(undefined, { which: "second" });
  await logIn(page);
  await hydrated(page);
  await page.keyboard.press("/");
  await page.keyboard.type("which=first");
  await expect(page).toHaveURL(/q=which/);
  await expect(row(page, first)).toBeVisible();
  await expect(row(page, second)).toHaveCount(0);
  await page.reload();
  await hydrated(page);
  await expect(page.getByRole("searchbox")).toHaveValue("which=first");
  await expect(row(page, second)).toHaveCount(0);
  await page.goto("/console/sandboxes?q=suite=browser");
  await hydrated(page);
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await expect(page.locator("[data-row-link]").nth(1)).toBeFocused();
  await page.keyboard.press("k");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog")).toContainText("Keyboard");
});

test("a failed sandbox shows the reason, the failed step, and that it has no endpoints", async ({
  page,
  api,
}) => {
  const failed = await api.create(["sh", "-c", "echo the disk is on fire; sleep 2; exit 3"]);
  await logIn(page, "/console/sandboxes?q=browser");
  await hydrated(page);
  await expect(row(page, failed)).toContainText("Failed");
  // Navigated by script, so that the page itself sends the requests; any refused one is a fault.
  await row(page, failed).getByRole("link").first().click();
  await expect(page).toHaveURL(new RegExp(failed.id));
  await expect(page.locator(".page-head")).toContainText("Failed");
  await expect(page.getByRole("region", { name: "Last output" })).toContainText("the disk is on fire");
  await expect(page.locator("#main")).toContainText("3");
  const endpoints = page.getByRole("region", { name: "Endpoints" });
  await expect(endpoints).toContainText("no endpoints");
  await expect(endpoints.locator(".addresses")).toHaveCount(0);
  const stages = page.getByRole("list", { name: "Stages" });
  await expect(stages.locator("[data-state=failed]")).toHaveText(/command.*failed/s);
});

test("a sandbox that failed at once does not claim that it was ready", async ({ page, api }) => {
  const failed = await api.create(["no-such-command"]);
  await logIn(page, `/console/sandboxes/${failed.id}`);
  await hydrated(page);
  await expect(page.locator(".page-head")).toContainText("Failed");
  const steps = page.getByRole("list", { name: "Stages" }).getByRole("listitem");
  const states = await steps.evaluateAll((all) => all.map((it) => (it as HTMLElement).dataset.state));
  // One step failed, and no later step is done.
  expect(states.join(" ")).toMatch(/^done( done)*( failed)( missed)*$/);
});

test("an invalid port is reported at its field, without the previous address", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}`);
  await hydrated(page);
  const endpoints = page.getByRole("region", { name: "Endpoints" });
  const addresses = endpoints.locator(".addresses");
  // No program listens, and execd is not what a user looks for.
  await expect(endpoints).toContainText("No program listens on a TCP port.");
  await expect(endpoints.locator(".no-endpoint")).toContainText("Type the port of a program");
  await page.getByLabel("Port").fill("44772");
  await expect(addresses).toContainText("/proxy/44772");
  for (const wrong of ["0", "70000", "abc", ""]) {
    await page.getByLabel("Port").fill(wrong);
    await expect(page.locator("#port-problem")).toContainText("65535");
    await expect(page.getByLabel("Port")).toHaveAttribute("aria-invalid", "true");
    await expect(addresses).toHaveCount(0);
    await page.getByLabel("Port").fill("8000");
    await expect(addresses).toContainText("/proxy/8000");
    await expect(page.locator("#port-problem")).toBeEmpty();
    await expect(page).toHaveURL(/port=8000/);
  }
});

test("a long label ends in an ellipsis and shows its full text on hover", async ({ page, api }) => {
  const long = "x".repeat(60);
  const { id } = await api.create(undefined, { purpose: long });
  await logIn(page, `/console/sandboxes?q=${id}`);
  await hydrated(page);
  const chip = page.locator(".label", { hasText: "purpose" });
  const cut = () =>
    chip.evaluate((it) => {
      const style = getComputedStyle(it);
      // Only a block element puts the ellipsis at the end of its text.
      return it.scrollWidth > it.clientWidth && `${style.textOverflow} in ${style.display}`;
    });
  await expect(chip).toHaveAttribute("title", `purpose=${long}`);
  expect(await cut()).toBe("ellipsis in block");
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto(`/console/sandboxes/${id}`);
  await expect(chip).toHaveAttribute("title", `purpose=${long}`);
  expect(await cut()).toBe("ellipsis in block");
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  expect(wide).toBeLessThanOrEqual(390);
});
