// The run tab: commands with their output, the list of what ran, running again, interrupting.

import type { Page } from "@playwright/test";
import { expect, hydrated, key, logIn, tabTo, test } from "./console";

const result = (page: Page) => page.getByRole("region", { name: "Result" });
const output = (page: Page) => page.getByRole("log", { name: "Output" });
const rows = (page: Page) => page.locator(".command-list > li");

async function open(page: Page, api: { create(): Promise<{ id: string }> }): Promise<string> {
  const { id } = await api.create();
  await logIn(page, `/console/sandboxes/${id}/run`);
  await hydrated(page);
  await expect(page.getByRole("button", { name: "Run", exact: true })).toBeEnabled();
  return id;
}

test("a command is run, listed and run again, with keys alone", async ({ page, api }) => {
  const id = await open(page, api);
  const command = page.getByLabel("Command", { exact: true });
  await command.focus();
  await page.keyboard.type("echo one; echo two >&2; exit 3");
  await page.keyboard.press("Enter");
  await expect(result(page).getByRole("status")).toContainText(/Exit 3 in [\d.]+ m?s/);
  await expect(output(page).locator(".log-line").first()).toHaveText("one");
  await expect(output(page).locator("[data-stream=error]")).toHaveText("two");
  await expect(rows(page)).toHaveCount(1);
  await expect(rows(page).first()).toContainText("Exit 3");
  const again = rows(page).first().getByRole("button", { name: /^Run again: echo one/ });
  await again.focus();
  await page.keyboard.press("Enter");
  await expect(rows(page)).toHaveCount(2);
  await expect(page.locator(".commands").getByRole("link", { name: "events" })).toHaveAttribute(
    "href",
    `/console/events?sandbox=${id}&action=command.run`,
  );
  await expect(command).toHaveValue("echo one; echo two >&2; exit 3");
  await expect(command).toBeFocused();
});

test("a command that runs is stopped, here and from the list", async ({ page, api }) => {
  await open(page, api);
  const command = page.getByLabel("Command", { exact: true });
  await command.fill("echo begun; exec sleep 600");
  await command.press("Enter");
  await expect(output(page)).toContainText("begun");
  await expect(rows(page).first()).toContainText("Running");
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await expect(result(page).getByRole("status")).toContainText(/Ended by a signal|Exit \d+/);
  await expect(rows(page).first()).not.toContainText("Running");

  // It goes on when its page is left.
  await command.fill("exec sleep 601");
  await command.press("Enter");
  await expect(rows(page)).toHaveCount(2);
  await page.reload();
  await hydrated(page);
  await expect(rows(page).first()).toContainText("Running");
  await rows(page).first().getByRole("button", { name: "Stop: exec sleep 601" }).click();
  await expect(rows(page).first()).not.toContainText("Running");
});

test("what other clients run appears, and hostile output is text", async ({ page, api, context }) => {
  const id = await open(page, api);
  const other = await context.newPage();
  await other.goto(`/console/sandboxes/${id}/run`);
  await hydrated(other);
  const hostile = "printf '<img src=x onerror=alert(1)>\\n\\033[31mred\\033[0m\\n'";
  await page.getByLabel("Command", { exact: true }).fill(hostile);
  await page.keyboard.press("Enter");
  await expect(output(page)).toContainText("<img src=x onerror=alert(1)>");
  await expect(output(page).locator(".ansi-1")).toHaveText("red");
  await expect(rows(other).first()).toContainText("<img src=x onerror=alert(1)>");
  expect(await page.locator(".run img").count()).toBe(0);
  expect(await other.locator(".run img").count()).toBe(0);
});

test("directory, user and limit count, and a wrong one is named", async ({ page, api }) => {
  await open(page, api);
  await page.getByText("Directory, user, limit").click();
  await page.getByLabel("Directory").fill("/usr");
  await page.getByLabel("User (number)").fill("root");
  const command = page.getByLabel("Command", { exact: true });
  await command.fill("pwd; id -u; sleep 600");
  await command.press("Enter");
  await expect(page.locator("#run-problem")).toContainText("User: a number");
  await expect(page.getByLabel("User (number)")).toBeFocused();
  await page.getByLabel("User (number)").fill("1234");
  await page.getByLabel("Limit (seconds)").fill("1");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(output(page)).toContainText("/usr");
  await expect(output(page)).toContainText("1234");
  await expect(result(page).getByRole("status")).toContainText(/signal|Exit|failed/);
  await expect(rows(page).first()).toContainText("in /usr · as user 1234");
});

test("a command is interrupted and run again with keys alone", async ({ page, api }) => {
  await open(page, api);
  await tabTo(page, page.getByLabel("Command", { exact: true }));
  await page.keyboard.type("echo begun; exec sleep 600");
  await page.keyboard.press("Enter");
  await expect(output(page)).toContainText("begun");
  const stop = page.getByRole("button", { name: "Stop", exact: true });
  await tabTo(page, stop);
  await page.keyboard.press("Enter");
  await expect(result(page).getByRole("status")).toContainText(/Ended by a signal|Exit \d+/);
  await expect(rows(page).first()).not.toContainText("Running");
  await expect(page.getByLabel("Command", { exact: true })).toBeFocused();
  await tabTo(page, rows(page).first().getByRole("button", { name: /^Run again/ }));
  await page.keyboard.press("Enter");
  await expect(rows(page)).toHaveCount(2);
  await expect(result(page).getByRole("status")).toContainText("Running for");
  await expect(page.getByLabel("Command", { exact: true })).toBeFocused();
  await tabTo(page, rows(page).first().getByRole("button", { name: /^Stop: echo begun/ }));
  await page.keyboard.press("Enter");
  await expect(rows(page).first()).not.toContainText("Running");
  await expect(page.getByLabel("Command", { exact: true })).toBeFocused();
});

test("variables reach the command, and wrong ones are named", async ({ page, api }) => {
  await open(page, api);
  await page.getByText("Directory, user, limit").click();
  const variables = page.getByLabel("Environment");
  await variables.fill("GREETING=hello world\n1X=2");
  const command = page.getByLabel("Command", { exact: true });
  await command.fill('echo "$GREETING"');
  await command.press("Enter");
  await expect(page.locator("#run-problem")).toContainText("Environment: one NAME=value a line");
  await expect(variables).toBeFocused();
  await variables.fill("GREETING=hello world\nX=2");
  await command.press("Enter");
  await expect(output(page).locator(".log-line")).toHaveText("hello world");
  // The same command again has the same variables.
  await rows(page).first().getByRole("button", { name: /^Run again/ }).click();
  await expect(rows(page)).toHaveCount(2);
  await expect(output(page).locator(".log-line")).toHaveText("hello world");
  await expect(rows(page).first()).not.toContainText("hello world");
});

test("a background command is left, and its output followed later", async ({ page, api }) => {
  await open(page, api);
  const command = page.getByLabel("Command", { exact: true });
  await page.getByLabel("In the background").check();
  await command.fill("echo early; echo late >&2; while ! test -e /tmp/go; do sleep 0.1; done; echo last; exit 4");
  await command.press("Enter");
  await expect(output(page)).toContainText("late");
  await expect(rows(page).first()).toContainText("Running");
  await expect(rows(page).first()).toContainText("background");
  await page.reload();
  await hydrated(page);
  await rows(page).first().getByRole("button", { name: /^Show the output: echo early/ }).press("Enter");
  await expect(output(page)).toBeFocused();
  await expect(output(page).locator(".log-line")).toHaveText(["early", "late"]);
  await expect(result(page).getByRole("status")).toContainText("Running for");
  // Only the list ends what this page did not start.
  await expect(page.getByRole("button", { name: "Stop", exact: true })).toHaveCount(0);
  await page.getByLabel("In the background").uncheck();
  await command.fill("touch /tmp/go; echo short");
  await command.press("Enter");
  await expect(result(page).getByRole("status")).toContainText("Exit 0");
  const row = rows(page).filter({ hasText: "early" });
  await expect(row).toContainText("Exit 4");
  await row.getByRole("button", { name: /^Show the output/ }).click();
  await expect(output(page).locator(".log-line")).toHaveText(["early", "late", "last"]);
  await expect(result(page).getByRole("status")).toContainText("Exit 4");
  // That of a command in the foreground is kept as well.
  await rows(page).filter({ hasText: "echo short" }).getByRole("button", { name: /^Show the output/ }).click();
  await expect(output(page).locator(".log-line")).toHaveText(["short"]);
  await expect(result(page).getByRole("status")).toContainText("Exit 0");
});

test("a viewer sees why nothing can be run or stopped", async ({ page, api }) => {
  test.skip(key === "", "roles need keys");
  const { id } = await api.create();
  await api.run(id, "echo seen");
  const added = await api.call("POST", "/api-keys", { name: "viewer-of-commands", role: "read_only" });
  const { secret, apiKey } = (await added.json()) as { secret: string; apiKey: { id: string } };
  try {
    await page.goto(`/console/login?next=/console/sandboxes/${id}/run`);
    await page.getByLabel("API key").fill(secret);
    await page.getByRole("button", { name: "Sign in" }).click();
    await hydrated(page);
    const why = "Your role may look at sandboxes, and not run commands.";
    await expect(page.locator("#run-help")).toHaveText(why);
    await expect(page.getByRole("button", { name: "Run", exact: true })).toBeDisabled();
    for (const name of [/^Show the output/, /^Run again/]) {
      const button = rows(page).first().getByRole("button", { name });
      await expect(button).toBeDisabled();
      await expect(button).toHaveAccessibleDescription(why);
    }
    await page.goto(`/console/sandboxes/${id}/terminal`);
    await expect(page.locator("#main")).toContainText("Your role may look at sandboxes, and not open shells in them.");
    await expect(page.locator(".terminal-card")).toHaveCount(0);
  } finally {
    await api.call("DELETE", `/api-keys/${apiKey.id}`);
  }
});

test("much output is shown in bounded memory", async ({ page, api }) => {
  await open(page, api);
  await page.getByLabel("Command", { exact: true }).fill("seq 1 50000");
  await page.keyboard.press("Enter");
  await expect(result(page).getByRole("status")).toContainText("Exit 0");
  await expect(output(page).locator(".log-line").last()).toHaveText("50000");
  await expect(output(page)).toContainText("48000 earlier lines are not shown");
  expect(await output(page).locator(".log-line").count()).toBe(2000);
});

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("what ran is readable", async ({ page, api }) => {
    const { id } = await api.create();
    await logIn(page, `/console/sandboxes/${id}/run`);
    await expect(page.getByRole("heading", { name: "What ran here" })).toBeVisible();
    await expect(page.locator(".run noscript .banner")).toBeVisible();
  });
});
