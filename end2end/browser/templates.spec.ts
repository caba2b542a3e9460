// Templates: made of an image or a Dockerfile, followed, used for new sandboxes, and deleted.

import type { Page } from "@playwright/test";
import { expect, hydrated, image, key, logIn, tabTo, test } from "./console";

const path = "/console/templates";
const line = (page: Page, name: string) =>
  page.locator("table.templates tbody tr").filter({ has: page.getByRole("link", { name, exact: true }) });
const action = (page: Page, name: string) => page.getByRole("button", { name, exact: true });

test.beforeEach(async ({ api }) => {
  test.skip(!(await api.hasTemplates()), "the runtime of this server has no templates");
});

/** Opens a page of the console and waits until it is live. */
async function open(page: Page, address: string): Promise<void> {
  await logIn(page, address);
  await hydrated(page);
}

test("one is made, used and deleted with keys alone", async ({ page, api }) => {
  test.setTimeout(120_000);
  await open(page, "/console");
  await page.keyboard.press("Control+k");
  await page.keyboard.type("templates");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`${path}$`));
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Templates");
  await tabTo(page, page.locator("details.template-add > summary"));
  await page.keyboard.press("Enter");
  await tabTo(page, page.getByLabel("Name", { exact: true }));
  await page.keyboard.type("by-keys");
  await page.keyboard.press("Enter");
  // What is wrong is at its field, and the first of it has the focus.
  await expect(page.getByLabel("Image", { exact: true })).toBeFocused();
  await expect(page.locator("#template-image-problem")).toContainText("Name an image");
  await page.keyboard.type(image);
  await tabTo(page, page.getByLabel("Environment"));
  await page.keyboard.type("COLOUR=blue");
  await tabTo(page, action(page, "Make the template"));
  await page.keyboard.press("Enter");
  await expect(page.locator(".toasts")).toContainText("The template is being made");
  await expect(page).toHaveURL(/\/console\/templates\/tpl-[0-9a-f-]{36}$/);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("by-keys");
  const template = page.url().split("/").pop()!;
  // Without a reload.
  await expect(page.locator(".page-head")).toContainText("Succeeded", { timeout: 60_000 });
  const sandboxes = page.getByRole("region", { name: "Its sandboxes" });
  await expect(sandboxes).toContainText("COLOUR");
  await expect(sandboxes).toContainText("No sandbox that exists was created from it.");
  await expect(page.locator("#main")).not.toContainText("blue");

  await tabTo(page, page.getByRole("group", { name: "Actions" }).getByRole("link", { name: "Create from this template" }));
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Create a sandbox");
  await expect(page.getByLabel("Source")).toHaveValue("template");
  await expect(page.getByLabel("Template", { exact: true })).toHaveValue(template);
  // The template has them.
  for (const label of ["Image", "Entry point", "CPU", "Memory"]) {
    await expect(page.getByLabel(label, { exact: true })).toBeHidden();
  }
  const code = page.getByRole("complementary", { name: "Equivalent code" });
  await expect(code).toContainText(`"templateId": "${template}"`);
  for (const [language, part] of [
    ["osb", `--template=${template}`],
    ["Python", "Sandbox.create_from_template("],
    ["TypeScript", "/v1/sandboxes"],
  ]) {
    await code.getByRole("radio", { name: language }).check();
    await expect(code.locator(".mirror-code:visible")).toContainText(part);
  }
  await tabTo(page, page.getByLabel("Name", { exact: true }), "Shift+Tab");
  await page.keyboard.type("from-a-template");
  await tabTo(page, page.getByLabel("Label name").last());
  await page.keyboard.type("suite");
  await tabTo(page, page.getByLabel("Value of suite"));
  await page.keyboard.type("browser");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("from-a-template");
  await expect(page.locator(".page-head")).toContainText("Running", { timeout: 60_000 });
  const sandbox = page.url().split("/").pop()!;
  expect(await api.run(sandbox, "echo $COLOUR")).toContain("blue");

  // Its page leads back to the template.
  await tabTo(page, page.getByRole("region", { name: "About" }).locator(`a[href$="${template}"]`));
  await page.keyboard.press("Enter");
  await expect(sandboxes).toContainText("1 sandbox was created from it");
  await tabTo(page, action(page, "Delete"));
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("alertdialog");
  await expect(dialog).toHaveAccessibleName("Delete the template by-keys?");
  await expect(dialog).toContainText("from-a-template");
  await page.keyboard.press("Escape");
  await expect(dialog).toBeHidden();
  expect(await api.phaseOf(template)).toBe("Succeeded");
  await api.remove(sandbox);
  await expect.poll(async () => (await api.call("GET", `/sandboxes/${sandbox}`)).status).toBe(404);
  await page.keyboard.press("Enter");
  await tabTo(page, dialog.getByRole("button", { name: "Delete template" }));
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(`${path}$`));
  await expect(page.locator(".toasts")).toContainText("The template by-keys is deleted");
  expect(await api.phaseOf(template)).toBeUndefined();
});

test("a build is followed: its log, its size, and why one failed", async ({ page, api }) => {
  test.setTimeout(180_000);
  await open(page, path);
  await page.locator("details.template-add > summary").click();
  await page.getByLabel("Name", { exact: true }).fill("built");
  await page.getByLabel("Dockerfile").fill(`FROM ${image}\nRUN echo a-line-of-the-build && sleep 4 && echo the-last-line`);
  await action(page, "Make the template").click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("built");
  const log = page.getByRole("log", { name: "Output of the build" });
  await expect(log).toContainText("a-line-of-the-build", { timeout: 60_000 });
  await expect(page.locator(".page-head")).toContainText("Succeeded", { timeout: 60_000 });
  await expect(log).toContainText("the-last-line");
  await page.goto(path);
  await expect(line(page, "built")).toContainText("Dockerfile");
  await expect(line(page, "built").locator(".c-size")).toContainText("B");
  await api.template("broken", { build: { dockerfile: `FROM ${image}\nRUN echo before; exit 7` } });
  await page.goto(path);
  await hydrated(page);
  await expect(line(page, "broken").locator(".c-state")).toContainText("Failed");
  const create = line(page, "broken").getByRole("link", { name: /^Create a sandbox from broken: It could not be made/ });
  await expect(create).toHaveAttribute("aria-disabled", "true");
  await line(page, "broken").getByRole("link", { name: "broken", exact: true }).click();
  await expect(page.getByRole("status").filter({ hasText: "7" })).toBeVisible();
  await expect(page.getByRole("log", { name: "Output of the build" })).toContainText("before");
});

test("a build is ended by a delete", async ({ page, api }) => {
  test.setTimeout(120_000);
  await open(page, path);
  await page.locator("details.template-add > summary").click();
  await page.getByLabel("Name", { exact: true }).fill("endless");
  await page.getByLabel("Dockerfile").fill(`FROM ${image}\nRUN echo it-has-begun && sleep 3600`);
  await action(page, "Make the template").click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("endless");
  await expect(page.getByRole("log", { name: "Output of the build" })).toContainText("it-has-begun", { timeout: 60_000 });
  const template = page.url().split("/").pop()!;
  await action(page, "Delete").click();
  const dialog = page.getByRole("alertdialog");
  await expect(dialog).toContainText("its build or its pull ends at once");
  await dialog.getByRole("button", { name: "Delete template" }).click();
  await expect(page).toHaveURL(new RegExp(`${path}$`));
  await expect(page.locator(".toasts")).toContainText("The template endless is deleted");
  expect(await api.phaseOf(template)).toBeUndefined();
  await expect(line(page, "endless")).toHaveCount(0);
});

test("a copy of a sandbox is made from its template", async ({ page, api }) => {
  test.setTimeout(120_000);
  const template = await api.template("copied");
  const { id } = await api.createFromTemplate(template, { name: "original" });
  await open(page, `/console/create?from=${id}`);
  await expect(page.getByLabel("Source")).toHaveValue("template");
  await expect(page.getByLabel("Template", { exact: true })).toHaveValue(template);
  await expect(page.locator("#main")).not.toContainText("TOKEN");
  await action(page, "Create").click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("original-copy");
  await expect(page.getByRole("region", { name: "About" }).locator(`a[href$="${template}"]`)).toBeVisible();
  // The audit trail leads to it.
  await page.goto("/console/events?action=template.create");
  await hydrated(page);
  await page.locator(".events tbody").getByRole("link", { name: template.slice(0, 12), exact: true }).press("Enter");
  await expect(page).toHaveURL(new RegExp(`${path}/${template}$`));
});

test("a viewer sees templates, and why nothing can be changed", async ({ page, api }) => {
  test.skip(!key, "this server has no key");
  const template = await api.template("looked-at");
  const added = await api.call("POST", "/api-keys", { name: "viewer-of-templates", role: "read_only" });
  const { secret, apiKey } = (await added.json()) as { secret: string; apiKey: { id: string } };
  try {
    await page.goto(`/console/login?next=${path}`);
    await page.getByLabel("API key").fill(secret);
    await page.getByRole("button", { name: "Sign in" }).click();
    await hydrated(page);
    const add = action(page, "Make a template");
    await expect(add).toHaveAccessibleDescription(/Your role may look/);
    await add.press("Enter");
    await line(page, "looked-at").getByRole("link", { name: "looked-at", exact: true }).click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("looked-at");
    await expect(action(page, "Delete")).toHaveAttribute("aria-disabled", "true");
    await expect(action(page, "Delete")).toHaveAccessibleDescription(/Your role may look/);
    await action(page, "Delete").press("Enter");
    await expect(page.getByRole("alertdialog")).toBeHidden();
    const create = page.getByRole("link", { name: "Create from this template" });
    await expect(create).toHaveAttribute("aria-disabled", "true");
    expect(await api.phaseOf(template)).toBe("Succeeded");
  } finally {
    await api.call("DELETE", `/api-keys/${apiKey.id}`);
  }
});

for (const width of [360, 390, 768, 1440]) {
  test(`the pages fit into ${width} px`, async ({ page, api }) => {
    const template = await api.template(`a-rather-long-name-of-a-template-of-the-team-${width}`);
    await page.setViewportSize({ width, height: 900 });
    for (const address of [path, `${path}/${template}`]) {
      await open(page, address);
      for (const summary of await page.locator("details.add > summary").all()) await summary.click();
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect([address, wide <= width]).toEqual([address, true]);
    }
  });
}

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("one is made, read, used and deleted", async ({ page, api, faults }) => {
    test.setTimeout(120_000);
    await logIn(page, path);
    await page.locator("details.template-add > summary").click();
    await page.getByLabel("Name", { exact: true }).fill("by-form");
    await page.getByRole("button", { name: "Make the template" }).click();
    // With what was typed.
    await expect(page.locator("#template-image-problem")).toContainText("Name an image");
    await expect(page.getByLabel("Name", { exact: true })).toHaveValue("by-form");
    // The browser logs the status of the refusal.
    expect(faults.splice(0)).toEqual([expect.stringContaining("status of 422")]);
    await page.getByLabel("Image", { exact: true }).fill(image);
    await page.getByRole("button", { name: "Make the template" }).click();
    await expect(page.locator(".toasts")).toContainText("The template is being made");
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("by-form");
    const template = page.url().split("/").pop()!;
    await expect.poll(() => api.phaseOf(template), { timeout: 60_000 }).toBe("Succeeded");
    await page.goto(path);
    await expect(line(page, "by-form")).toContainText(image);
    await line(page, "by-form").getByRole("link", { name: "Create a sandbox from by-form" }).click();
    await expect(page.getByLabel("Template", { exact: true })).toHaveValue(template);
    await page.goto(`${path}/${template}`);
    await action(page, "Delete").click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("Delete the template by-form?");
    await page.getByRole("link", { name: "Cancel" }).click();
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("by-form");
    await action(page, "Delete").click();
    await page.getByRole("button", { name: "Delete template" }).click();
    await expect(page.locator(".toasts")).toContainText("The template is deleted");
    expect(await api.phaseOf(template)).toBeUndefined();
  });
});
