// The terminal: a real shell that outlives the page that shows it.

import type { Page } from "@playwright/test";
import { expect, hydrated, logIn, screen, test, type } from "./console";

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

/** Counts output in the page, from before its first script. */
async function countOutput(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const count = { received: 0, atInterrupt: -1 };
    Object.assign(window, { __count: count });
    window.WebSocket = class extends WebSocket {
      constructor(url: string | URL) {
        super(url);
        if (!String(url).includes("/console/terminal/")) return;
        this.addEventListener("message", ({ data }) => {
          count.received += (data as ArrayBuffer).byteLength ?? 0;
        });
      }

      send(data: string | ArrayBuffer | ArrayBufferView | Blob) {
        const bytes = data instanceof Uint8Array ? data : new Uint8Array();
        if (bytes[0] === 0 && bytes[1] === 3) count.atInterrupt = count.received;
        super.send(data as ArrayBuffer);
      }
    };
  });
}

function counted(page: Page): Promise<{ received: number; atInterrupt: number }> {
  return page.evaluate(
    () => (window as unknown as { __count: { received: number; atInterrupt: number } }).__count,
  );
}

test("an interrupt does not wait behind a flood of output", async ({ page, sandbox }) => {
  await countOutput(page);
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await type(page, "yes");
  await expect.poll(async () => (await counted(page)).received).toBeGreaterThan(2 << 20);
  await page.keyboard.press("Control+c");
  await page.keyboard.type("echo back $((40+2))");
  await page.keyboard.press("Enter");
  await expect.poll(() => screen(page)).toContain("back 42");
  const { received, atInterrupt } = await counted(page);
  expect(atInterrupt).toBeGreaterThan(0);
  // Twice the window and what the kernel holds; without flow control, it was 20 MB.
  expect(received - atInterrupt).toBeLessThan(512 << 10);
});

test("a flood of lines arrives complete", async ({ page, sandbox }) => {
  await countOutput(page);
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await type(page, "seq -f 'line %.0f of a log that is followed' 50000; echo all $((40+2))");
  await expect.poll(() => screen(page)).toContain("all 42");
  expect(await screen(page)).toContain("line 50000 of");
  expect((await counted(page)).received).toBeGreaterThan(50_000 * 36);
});

test("a second tab may watch, take over, or start a shell of its own", async ({
  page,
  context,
  sandbox,
}) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  const bar = page.locator(".terminal-bar");
  await expect(bar).toContainText("Connected");
  await type(page, "echo first $((40+2))");
  await expect.poll(() => screen(page)).toContain("first 42");
  const memory = await page.evaluate(() => JSON.stringify(sessionStorage));

  const copy = async () => {
    const other = await context.newPage();
    await other.addInitScript((memory) => {
      if (sessionStorage.length > 0) return;
      for (const [name, value] of Object.entries(JSON.parse(memory))) {
        sessionStorage.setItem(name, value as string);
      }
    }, memory);
    await other.goto(`/console/sandboxes/${sandbox.id}/terminal`);
    await expect(other.locator(".terminal-bar")).toContainText("open in another tab");
    return other;
  };
  const offer = (other: Page, name: string) =>
    other.locator(".terminal-state").getByRole("button", { name, exact: true });

  const viewer = await copy();
  await offer(viewer, "View only").focus();
  await viewer.keyboard.press("Enter");
  await expect(viewer.locator(".terminal-bar")).toContainText("View only");
  await expect.poll(() => screen(viewer)).toContain("first 42");
  await type(viewer, "echo typed by the viewer");
  await page.bringToFront();
  await type(page, "echo seen $((1+1))");
  await expect.poll(() => screen(viewer)).toContain("seen 2");
  expect(await screen(viewer)).not.toContain("typed by");
  await expect(bar).toContainText("Connected");

  const fresh = await copy();
  await offer(fresh, "New shell").click();
  await expect(fresh.locator(".terminal-bar")).toContainText("Connected");
  await type(fresh, "echo own $((2+2))");
  await expect.poll(() => screen(fresh)).toContain("own 4");
  expect(await screen(fresh)).not.toContain("first");

  await offer(viewer, "Take over").click();
  await expect(viewer.locator(".terminal-bar")).toContainText("Connected");
  await expect(bar).toContainText("open in another tab");
  // After a reload, the shell is this tab's again without a question.
  await viewer.reload();
  await expect(viewer.locator(".terminal-bar")).toContainText("Connected");
  await expect.poll(() => screen(viewer)).toContain("seen 2");
});

test("waits for a create, a resume and an end, and says so", async ({ page, api }) => {
  const sandbox = await api.create(["sh", "-c", "echo over; read line < /tmp/end || sleep 900"]);
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  const bar = page.locator(".terminal-bar");
  await expect(bar).toContainText("Connected");
  await type(page, "echo before $((40+2))");
  await expect.poll(() => screen(page)).toContain("before 42");

  await api.call("POST", `/sandboxes/${sandbox.id}/pause`);
  const card = page.locator(".not-running");
  await expect(card).toContainText("The sandbox is paused");
  await page.reload();
  // Before that, the button is one of a form, which leads to another page.
  await hydrated(page);
  await expect(card).toContainText("The sandbox is paused");
  await expect(page.locator(".terminal-card")).toHaveCount(0);
  await card.getByRole("button", { name: "Resume" }).focus();
  await page.keyboard.press("Enter");
  await expect(bar).toContainText("Connected");
  await expect(card).toHaveCount(0);
  await expect.poll(() => screen(page)).toContain("before 42");

  await api.remove(sandbox.id);
  await expect(card).toContainText("deleted");
  await expect(bar).toContainText("The sandbox has ended");
  await expect(page.getByRole("button", { name: /new shell/i })).toHaveCount(0);
});

test("a failed sandbox has no shell, but a reason and logs", async ({ page, api }) => {
  const sandbox = await api.create(["sh", "-c", "echo the last words; exit 3"]);
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  const card = page.locator(".not-running");
  await expect(card).toContainText("Failed");
  await expect(card).toContainText("exit code 3");
  await expect(page.getByRole("button", { name: /shell/i })).toHaveCount(0);
  await card.getByRole("link", { name: "Logs" }).click();
  await expect(page).toHaveURL(new RegExp(`${sandbox.id}/logs`));
});

test("text is found, copied and pasted with the keyboard", async ({ page, context, sandbox }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await type(page, "echo needle-$((40+2))");
  await expect.poll(() => screen(page)).toContain("needle-42");
  const tools = page.getByRole("group", { name: "Terminal tools" });
  await tools.getByRole("button", { name: "Search the output" }).press("Enter");
  const field = page.getByRole("searchbox", { name: "Text to find" });
  await expect(field).toBeFocused();
  const search = page.locator(".terminal-search");
  await page.keyboard.type("nowhere-to-be-seen");
  await page.keyboard.press("Enter");
  await expect(search).toContainText("Not found");
  await field.fill("needle-42");
  await page.keyboard.press("Enter");
  // What was found is selected, and stays so.
  await expect.poll(() => page.locator(".xterm-selection > div").count()).toBeGreaterThan(0);
  await expect(search).not.toContainText("Not found");
  await page.keyboard.press("Escape");
  await expect(search).toHaveCount(0);
  await expect(page.locator(".xterm-helper-textarea")).toBeFocused();
  await page.keyboard.press("Control+Shift+C");
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe("needle-42");
  await page.keyboard.type("echo pasted-");
  await page.keyboard.press("Control+Shift+V");
  await page.keyboard.press("Enter");
  await expect.poll(() => screen(page)).toContain("\npasted-needle-42");
});

test("tools change the size and open another shell", async ({ page, context, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  const tools = page.getByRole("group", { name: "Terminal tools" });
  const letters = page.locator(".xterm-rows");
  await expect(letters).toHaveCSS("font-size", "13px");
  await tools.getByRole("button", { name: "Larger text" }).press("Enter");
  await expect(letters).toHaveCSS("font-size", "14px");
  const card = page.locator(".terminal-card");
  const full = tools.getByRole("button", { name: "Full height" });
  await full.press("Enter");
  const { height } = page.viewportSize()!;
  await expect.poll(async () => (await card.boundingBox())!.height).toBe(height);
  await full.press("Enter");
  await expect.poll(async () => (await card.boundingBox())!.height).toBeLessThan(height);
  await page.reload();
  await expect(letters).toHaveCSS("font-size", "14px");
  // A connection takes the focus when it is there.
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  const opened = context.waitForEvent("page");
  await tools.getByRole("button", { name: "New shell" }).press("Enter");
  await expect(page.getByLabel("Shell", { exact: true })).toBeFocused();
  await page.keyboard.press("Enter");
  const other = await opened;
  await expect(other.locator(".terminal-bar")).toContainText("Connected");
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
});

test("a new shell has the program, the user and the directory of the form", async ({
  page,
  context,
  sandbox,
}) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  const tools = page.getByRole("group", { name: "Terminal tools" });
  const form = page.getByRole("form", { name: "New shell" });
  const start = async (fields: [string, string][]) => {
    await tools.getByRole("button", { name: "New shell" }).press("Enter");
    for (const [name, value] of fields) await form.getByLabel(name, { exact: true }).fill(value);
    const opened = context.waitForEvent("page");
    await form.getByRole("button", { name: "Open in a new tab" }).press("Enter");
    const other = await opened;
    await expect(form).toHaveCount(0);
    return other;
  };
  const other = await start([
    ["Shell", "sh"],
    ["User", "daemon"],
    ["Directory", "/usr"],
  ]);
  await expect(other.locator(".terminal-bar")).toContainText("Connected");
  await type(other, "echo is:$(id -un):$PWD:$0:");
  await expect.poll(() => screen(other)).toMatch(/is:daemon:\/usr:\S*sh:/);
  // It is this tab's own, also after a reload.
  await other.reload();
  await expect(other.locator(".terminal-bar")).toContainText("Connected");
  await expect.poll(() => screen(other)).toContain("is:daemon");
  // The form agreed to one shell only.
  const again = await context.newPage();
  await again.goto(other.url());
  await expect(again.getByRole("button", { name: "Start it" })).toBeVisible();
  await again.close();
  await page.bringToFront();

  const refused = await start([["User", "$(reboot)"]]);
  await expect(refused.locator(".terminal-bar")).toContainText("user: only letters, digits");
  await tools.getByRole("button", { name: "New shell" }).press("Enter");
  await expect(form.getByLabel("Shell", { exact: true })).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(form).toHaveCount(0);
  await expect(page.locator(".xterm-helper-textarea")).toBeFocused();
});

test("an address with a program starts nothing before its user agrees", async ({ page, api, sandbox }) => {
  const connections: string[] = [];
  page.on("websocket", (socket) => {
    if (socket.url().includes("/console/terminal/")) connections.push(socket.url());
  });
  const address = `/console/sandboxes/${sandbox.id}/terminal?program=sh&user=daemon&cwd=/tmp/asked`;
  await logIn(page, address);
  const bar = page.locator(".terminal-bar");
  const start = bar.getByRole("button", { name: "Start it" });
  /** The page asks, and has neither a shell nor a connection. */
  const asks = async () => {
    await expect(bar).toContainText('program "sh", user "daemon", directory "/tmp/asked"');
    await expect(start).toBeVisible();
    expect(connections).toEqual([]);
    const shell = await page.evaluate((id) => sessionStorage.getItem(`osb.pty.${id}`), sandbox.id);
    expect(shell).toBeNull();
    // execd makes the directory of a shell that it starts.
    const made = await api.run(sandbox.id, "test -e /tmp/asked; echo made:$((40+$?))");
    expect(made).toContain("made:41");
  };
  await asks();
  await page.reload();
  await asks();
  // What was confirmed for another shell is no answer.
  await page.evaluate(
    (id) => localStorage.setItem("osb.terminal.confirmed", `${id}&program=sh`),
    sandbox.id,
  );
  await page.reload();
  await asks();
  expect(await page.evaluate(() => localStorage.getItem("osb.terminal.confirmed"))).toBeNull();

  await start.press("Enter");
  await expect(bar).toContainText("Connected");
  await type(page, "echo is:$(id -un):$PWD:$0:");
  await expect.poll(() => screen(page)).toMatch(/is:daemon:\/tmp\/asked:\S*sh:/);
  expect(connections.length).toBeGreaterThan(0);
  // It is this tab's own now.
  await page.reload();
  await expect(bar).toContainText("Connected");
  await expect.poll(() => screen(page)).toContain("is:daemon");
});

test("a shell is shared read-only by its address", async ({ page, context, browser, baseURL, sandbox }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await type(page, "echo shared $((40+2))");
  await expect.poll(() => screen(page)).toContain("shared 42");
  await page.getByRole("button", { name: "Copy a link to watch this shell" }).press("Enter");
  await expect(page.getByText("The link is copied.")).toBeVisible();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  expect(link).toMatch(/\/terminal\?shell=[0-9a-f-]+&view=1$/);

  // Other operators have browsers of their own.
  const watchers = [];
  for (let count = 0; count < 2; count += 1) {
    const watcher = await (await browser.newContext({ baseURL: baseURL! })).newPage();
    await logIn(watcher, `/console/sandboxes/${sandbox.id}`);
    await watcher.goto(link);
    await expect(watcher.locator(".terminal-bar")).toContainText("View only");
    await expect.poll(() => screen(watcher)).toContain("shared 42");
    watchers.push(watcher);
  }
  const [first, second] = watchers as [Page, Page];
  await type(first, "echo typed by a watcher");
  await page.bringToFront();
  await type(page, "echo seen $((1+1))");
  for (const watcher of watchers) await expect.poll(() => screen(watcher)).toContain("seen 2");
  expect(await screen(first)).not.toContain("typed by");
  await expect(page.locator(".terminal-bar")).toContainText("Connected");

  // It is watched again after a reload, and left for a shell of one's own.
  await second.reload();
  await expect(second.locator(".terminal-bar")).toContainText("View only");
  await second.getByRole("link", { name: "Own shell" }).press("Enter");
  await expect(second.locator(".terminal-bar")).toContainText("Connected");
  await expect(second).not.toHaveURL(/shell=/);
  await type(second, "echo own $((2+2))");
  await expect.poll(() => screen(second)).toContain("own 4");
  expect(await screen(second)).not.toContain("shared");

  await page.bringToFront();
  await type(page, "exit 5");
  await expect(first.locator(".terminal-bar")).toContainText("ended with status 5");
  await first.reload();
  await expect(first.locator(".terminal-bar")).toContainText(/gone|ended/);
  await expect(first.getByRole("button", { name: /shell/i }).and(first.locator(".terminal-state *"))).toHaveCount(0);
  for (const watcher of watchers) await watcher.context().close();
});

test("a title is text, whatever a program makes of it", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await type(page, "printf '\\e]2;<img src=x onerror=alert(1)>\\u202egnp\\a'; echo set $((40+2))");
  await expect.poll(() => screen(page)).toContain("set 42");
  const title = page.locator(".terminal-title");
  await expect(title).toHaveText("<img src=x onerror=alert(1)>gnp");
  await expect(title.locator("img")).toHaveCount(0);
});
