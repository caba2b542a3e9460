// A desktop over VNC in the preview tab. The server in the sandbox is as small as the protocol
// (RFC 6143) allows: one picture, and a log of what it receives.

import type { Page } from "@playwright/test";
import { expect, hydrated, logIn, test } from "./console";

/** With /tmp/password it wants VNC authentication, and takes any answer. */
const SERVER = `
import os, socket, struct
W, H = 160, 100
log = open("/tmp/vnc.log", "a", buffering=1)
def read(c, n):
    data = b""
    while len(data) < n:
        more = c.recv(n - len(data))
        if not more: raise EOFError
        data += more
    return data
def serve(c):
    c.sendall(b"RFB 003.008\\n"); read(c, 12)
    if os.path.exists("/tmp/password"):
        c.sendall(b"\\1\\2"); read(c, 1); c.sendall(b"0123456789abcdef"); log.write("answer %s\\n" % read(c, 16).hex())
    else:
        c.sendall(b"\\1\\1"); read(c, 1)
    c.sendall(struct.pack(">I", 0)); read(c, 1)
    name = "<b>desk</b>".encode()
    c.sendall(struct.pack(">HHBBBBHHHBBBxxxI", W, H, 32, 24, 0, 1, 255, 255, 255, 16, 8, 0, len(name)) + name)
    while True:
        kind = read(c, 1)[0]
        if kind == 0: read(c, 19)
        elif kind == 2: read(c, 4 * struct.unpack(">xH", read(c, 3))[0])
        elif kind == 3:
            incremental = read(c, 9)[0]
            if not incremental:
                c.sendall(struct.pack(">BxHHHHHi", 0, 1, 0, 0, W, H, 0) + b"\\x20\\xc0\\x40\\0" * (W * H))
                text = "from the desktop".encode()
                c.sendall(struct.pack(">BxxxI", 3, len(text)) + text)
        elif kind == 4: log.write("key %d %d\\n" % struct.unpack(">BxxI", read(c, 7)))
        elif kind == 5: log.write("pointer %d %d %d\\n" % struct.unpack(">BHH", read(c, 5)))
        elif kind == 6:
            n = struct.unpack(">xxxi", read(c, 7))[0]
            log.write("clipboard %s\\n" % read(c, abs(n)).decode("latin-1"))
        else: log.write("odd %d\\n" % kind); return
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", 5900)); s.listen()
while True:
    c, _ = s.accept()
    try: serve(c)
    except (EOFError, OSError): pass
    c.close()
`;

const ENTRYPOINT = ["bash", "-c", `cat > /tmp/vnc.py <<'END'\n${SERVER}\nEND\nexec python3 /tmp/vnc.py`];
const state = (page: Page) => page.locator(".desktop-state");

/** The colour in the middle of the desktop. */
function colour(page: Page): Promise<number[]> {
  return page.locator(".desktop-place canvas").evaluate((it) => {
    const canvas = it as HTMLCanvasElement;
    const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })!;
    pixel.drawImage(canvas, canvas.width / 2, canvas.height / 2, 1, 1, 0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  });
}

/** What the server in the sandbox received. */
async function received(page: Page, id: string): Promise<string> {
  const answer = await page.request.get(`/console/sandboxes/${id}/files/download?path=/tmp/vnc.log`);
  return answer.text();
}

test("a desktop is found, shown and driven, by keyboard", async ({ page, api }) => {
  const { id } = await api.create(ENTRYPOINT);
  await logIn(page, `/console/sandboxes/${id}/preview`);
  await hydrated(page);
  const link = page.getByRole("link", { name: "Desktop on port 5900" });
  await expect(async () => {
    if (!(await link.isVisible())) await page.getByRole("button", { name: "Check again" }).click();
    await expect(link).toBeVisible({ timeout: 1_000 });
  }).toPass();
  await link.press("Enter");
  await expect(page).toHaveURL(/port=5900&as=desktop$/);
  await expect(state(page)).toHaveText("Connected");
  await expect(page.locator(".desktop-name")).toHaveText("<b>desk</b>");
  await expect.poll(() => colour(page)).toEqual([32, 192, 64]);

  // It has the focus: keys go to it.
  await page.keyboard.type("a");
  await page.keyboard.press("Tab");
  await expect.poll(() => received(page, id)).toContain("key 1 97\nkey 0 97\nkey 1 65289\nkey 0 65289\n");
  // Out of it, without a key that stays pressed.
  await page.keyboard.press("Control+Shift+ArrowUp");
  const tools = page.getByRole("group", { name: "Desktop tools" });
  await expect(tools.locator(":focus")).toHaveCount(1);
  await expect.poll(() => received(page, id)).toMatch(/key 0 65507\n/);
  const log = await received(page, id);
  for (const key of [65505, 65507]) {
    expect([key, log.split(`key 1 ${key}\n`).length]).toEqual([key, log.split(`key 0 ${key}\n`).length]);
  }
  expect(log).not.toContain("65362");

  await tools.getByLabel("Clipboard", { exact: true }).press("Enter");
  const clipboard = page.getByLabel("Text on the desktop's clipboard");
  await expect(clipboard).toHaveValue("from the desktop");
  await clipboard.fill("to the desktop");
  await expect.poll(() => received(page, id)).toContain("clipboard to the desktop\n");
  await page.keyboard.press("Escape");
  await tools.getByRole("button", { name: "Send Ctrl+Alt+Del" }).press("Enter");
  await expect.poll(() => received(page, id)).toContain("key 1 65535");

  await tools.getByRole("button", { name: "View only" }).press("Enter");
  const pressed = (await received(page, id)).split("pointer").length;
  await page.locator(".desktop-place canvas").click();
  await page.keyboard.type("zz");
  await tools.getByRole("button", { name: "View only" }).press("Enter");
  await page.locator(".desktop-place canvas").click();
  await expect.poll(async () => (await received(page, id)).split("pointer").length).toBeGreaterThan(pressed);
  expect(await received(page, id)).not.toContain("key 1 122");
});

test("a password is asked for, a refusal is said, and an end can be mended", async ({ page, api }) => {
  const wait = "touch /tmp/password; cat > /tmp/vnc.py";
  const entry = [ENTRYPOINT[0]!, ENTRYPOINT[1]!, ENTRYPOINT[2]!.replace("cat > /tmp/vnc.py", wait)];
  const { id } = await api.create(entry);
  await logIn(page, `/console/sandboxes/${id}/preview?port=5900&as=desktop`);
  const again = page.getByRole("button", { name: "Connect again" });
  await expect(async () => {
    if (await again.isVisible()) await again.click();
    await expect(page.getByLabel("Password")).toBeVisible({ timeout: 2_000 });
  }).toPass();
  await page.getByLabel("Password").fill("secret");
  await page.keyboard.press("Enter");
  await expect(state(page)).toHaveText("Connected");
  expect(await received(page, id)).toMatch(/answer [0-9a-f]{32}\n/);

  // A port without a program.
  await page.goto(`/console/sandboxes/${id}/preview?port=5901&as=desktop`);
  await expect(state(page)).toContainText("no program accepts connections on port 5901: Connection refused");
  await expect(again).toBeVisible();
});

test("the desktop fits into 360 px", async ({ page, api }) => {
  await page.setViewportSize({ width: 360, height: 800 });
  const { id } = await api.create(ENTRYPOINT);
  await logIn(page, `/console/sandboxes/${id}/preview?port=5900&as=desktop`);
  const again = page.getByRole("button", { name: "Connect again" });
  await expect(async () => {
    if (await again.isVisible()) await again.click();
    await expect(state(page)).toHaveText("Connected", { timeout: 2_000 });
  }).toPass();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
});
