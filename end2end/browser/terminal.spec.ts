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

test("the colours follow the theme at once", async ({ page, sandbox }) => {
  await page.emulateMedia({ colorScheme: "light" });
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  const card = page.locator(".terminal-card");
  const shown = page.locator(".terminal .xterm-scrollable-element");
  const same = async (colour: string) => {
    await expect(card).toHaveCSS("background-color", colour);
    await expect(shown).toHaveCSS("background-color", colour);
  };
  const [light, dark] = ["rgb(251, 251, 253)", "rgb(11, 14, 19)"];
  await same(light);
  await page.emulateMedia({ colorScheme: "dark" });
  await same(dark);
  const theme = page.getByRole("button", { name: /^Theme:/ });
  await theme.click();
  await expect(theme).toHaveAccessibleName("Theme: light");
  await same(light);
  await theme.click();
  await same(dark);
});

test("typed letters of all scripts reach the shell, and are deleted as a whole", async ({
  page,
  sandbox,
}) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await type(page, "stty -a | grep -o '.iutf8'");
  await expect.poll(() => screen(page)).toContain("\n iutf8");
  await page.keyboard.insertText("x='grün€日本😀");
  await page.keyboard.press("Backspace");
  await page.keyboard.insertText("é'; echo ${#x}:$x:");
  await page.keyboard.press("Enter");
  await expect.poll(() => screen(page)).toContain("8:grün€日本é:");
  // An emoji is two columns wide, as the shell assumes.
  const wide = "printf '%s\\n' 😀 | wc -L";
  await page.keyboard.insertText(wide);
  await page.keyboard.press("Home");
  await page.keyboard.insertText("echo wide; ");
  await page.keyboard.press("Enter");
  await expect.poll(() => screen(page)).toContain(`echo wide; ${wide}`);
});

test("screen reader mode is a choice that is kept", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  const bar = page.locator(".terminal-bar");
  await expect(bar).toContainText("Connected");
  const text = page.locator(".xterm-accessibility");
  await expect(text).toHaveCount(0);
  const mode = page.getByRole("button", { name: "Screen reader mode" });
  await mode.focus();
  await page.keyboard.press("Enter");
  await expect(mode).toHaveAttribute("aria-pressed", "true");
  await type(page, "echo read $((40+2))");
  await expect(text).toContainText("read 42");
  await page.reload();
  await expect(bar).toContainText("Connected");
  await expect(mode).toHaveAttribute("aria-pressed", "true");
  await expect(text).toContainText("read 42");
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
