// The terminal: a real shell that outlives the page that shows it.

import { expect, logIn, screen, test, type } from "./console";

test("types, resizes, survives a reload and asks before a takeover", async ({
  page,
  context,
  sandbox,
}) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  const bar = page.locator(".terminal-bar");
  await expect(bar).toContainText("Connected");

  await type(page, "echo six times seven is $((6*7))");
  await expect.poll(() => screen(page)).toContain("six times seven is 42");

  const size = async () => {
    await type(page, "echo size:$(stty size | tr ' ' x)");
    await expect.poll(() => screen(page)).toMatch(/size:\d+x\d+/);
    return [...(await screen(page)).matchAll(/size:(\d+x\d+)/g)].pop()![1];
  };
  const before = await size();
  await page.setViewportSize({ width: 900, height: 500 });
  await expect.poll(size, { timeout: 30_000 }).not.toBe(before);

  await page.reload();
  await expect(bar).toContainText("Connected");
  await expect.poll(() => screen(page)).toContain("size:");
  await type(page, "echo still the same shell: $((40+2))");
  await expect.poll(() => screen(page)).toContain("still the same shell: 42");

  // A second page with the same shell asks before it takes over.
  const pty = await page.evaluate((id) => sessionStorage.getItem(`osb.pty.${id}`), sandbox.id);
  const other = await context.newPage();
  await other.addInitScript(
    ([id, pty]) => sessionStorage.setItem(`osb.pty.${id}`, pty!),
    [sandbox.id, pty],
  );
  await other.goto(`/console/sandboxes/${sandbox.id}/terminal`);
  await expect(other.locator(".terminal-bar")).toContainText("open in another tab");
  await expect(bar).toContainText("Connected");
  await other.getByRole("button", { name: "Take over" }).click();
  await expect(other.locator(".terminal-bar")).toContainText("Connected");
  await expect(bar).toContainText("open in another tab");
  await expect.poll(() => screen(other)).toContain("size:");
});

test("programs get all colours", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  // Colours outside the palette, as text and background, are set on each span.
  await type(page, "printf '\\e[48;2;0;0;80;38;2;255;100;0mtrue%s\\e[0m\\n' colour");
  await expect.poll(() => screen(page)).toContain("truecolour");
  const piece = page.locator(".xterm-rows span", { hasText: /^truecolour$/ });
  await expect(piece).toHaveCSS("color", "rgb(255, 100, 0)");
  await expect(piece).toHaveCSS("background-color", "rgb(0, 0, 80)");
});

test("the end of a shell is reported, and a new one starts on request", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  const bar = page.locator(".terminal-bar");
  await expect(bar).toContainText("Connected");
  await type(page, "exit 3");
  await expect(bar).toContainText("ended with status 3");
  await page.getByRole("button", { name: "Start a new shell" }).click();
  await expect(bar).toContainText("Connected");
  await type(page, "echo fresh $((1+1))");
  await expect.poll(() => screen(page)).toContain("fresh 2");
});

test("t opens the terminal of the chosen sandbox", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes?q=${sandbox.id}`);
  await expect(page.locator(".link-state[data-state=live]")).toBeVisible();
  await page.keyboard.press("j");
  await page.keyboard.press("t");
  await expect(page).toHaveURL(new RegExp(`${sandbox.id}/terminal`));
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
});
