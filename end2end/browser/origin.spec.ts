// Previews with origins of their own: their pages have storage, and reach neither each other nor the
// console.

import type { Page } from "@playwright/test";
import { expect, hydrated, logIn } from "./console";
import { testsWithOwn } from "./own";

const test = testsWithOwn(async () => ({
  runtime: "docker",
  more: '[docker]\nnetwork_mode = "bridge"\npublish_host = "127.0.0.1"\n[console]\npreview_address = "127.0.0.1:0"',
}));

/** Counts its visits in its storage; with an address after `#`, tries to get something from there. */
const PAGE = `<!doctype html><title>preview</title><pre id=visits></pre><pre id=report></pre><script>
  localStorage.visits = Number(localStorage.visits ?? 0) + 1;
  document.cookie = "theirs=1";
  document.getElementById("visits").textContent = self.origin + " visit " + localStorage.visits;
  const found = {};
  const attempt = async (name, act) => { try { found[name] = String(await act()); } catch { found[name] = "refused"; } };
  const until = (target, good, bad) => new Promise((yes, no) => {
    target[good] = () => yes("worked");
    target[bad] = () => no();
    setTimeout(no, 3000);
  });
  (async () => {
    const victim = decodeURIComponent(location.hash.slice(1));
    if (!victim) return;
    await attempt("read", async () => (await fetch(victim, { credentials: "include" })).text());
    await attempt("blind", async () => {
      await fetch(victim + "/blind", { credentials: "include", mode: "no-cors" });
      return "sent";
    });
    await attempt("script", () => {
      const script = document.createElement("script");
      script.src = victim + "/code.js";
      document.body.append(script);
      return until(script, "onload", "onerror");
    });
    await attempt("socket", () => until(new WebSocket(victim.replace("http", "ws") + "/socket"), "onopen", "onerror"));
    await attempt("frame", () => {
      const frame = document.createElement("iframe");
      frame.src = victim;
      document.body.append(frame);
      return new Promise((yes, no) => {
        frame.onload = () => { try { yes(frame.contentWindow.localStorage.visits); } catch { no(); } };
        setTimeout(no, 3000);
      });
    });
    document.getElementById("report").textContent = JSON.stringify(found);
  })();
</script>`;

const ENTRYPOINT = [
  "bash",
  "-c",
  `mkdir -p /srv/www; cd /srv/www; echo 'window.code = 1' > code.js; cat > index.html <<'END'\n${PAGE}\nEND\nexec python3 -m http.server 8000 2>> /tmp/requests`,
];

/** Opens port 8000 of a sandbox with storage, in a tab of its own. */
async function open(page: Page, id: string): Promise<Page> {
  await page.goto(`/console/sandboxes/${id}/preview?port=8000`);
  await hydrated(page);
  const opened = page.context().waitForEvent("page");
  await page.getByRole("link", { name: "Open with storage" }).press("Enter");
  const preview = await opened;
  await expect(async () => {
    if (!(await preview.locator("#visits").isVisible())) await preview.reload();
    await expect(preview.locator("#visits")).toContainText("visit", { timeout: 1_000 });
  }).toPass();
  return preview;
}

test("pages have storage, and get nothing of each other and of the console", async ({ page, api, own, faults }) => {
  const [victim, attacker] = [await api.create(ENTRYPOINT), await api.create(ENTRYPOINT)];
  await logIn(page);
  const shown = await open(page, victim.id);
  const address = new URL(shown.url());
  expect(address.hostname).toBe(`${victim.id}-8000.localhost`);
  expect(await shown.locator("#visits").innerText()).toMatch(new RegExp(`^${address.origin} visit \\d+$`));
  const visits = async () => Number((await shown.locator("#visits").innerText()).split(" ").pop());
  const before = await visits();
  await shown.reload();
  expect(await visits()).toBe(before + 1);

  const other = await open(page, attacker.id);
  for (const target of [address.origin, `${own.url}/console`]) {
    const start = new URL(other.url());
    await other.goto(`${start.origin}/#${encodeURIComponent(target)}`);
    await other.reload();
    await expect(other.locator("#report")).toContainText("{");
    const found = JSON.parse(await other.locator("#report").innerText()) as Record<string, string>;
    for (const name of ["read", "script", "socket", "frame"]) {
      expect([target, name, found[name]]).toEqual([target, name, "refused"]);
    }
  }
  // What was sent blindly did not arrive.
  const log = await page.request.get(`/console/sandboxes/${victim.id}/files/download?path=/tmp/requests`);
  const requests = await log.text();
  expect(requests).toContain("GET / HTTP");
  for (const path of ["/blind", "/code.js", "/socket"]) expect(requests).not.toContain(path);

  await page.goto("/console");
  await page.getByRole("button", { name: "Log out" }).click();
  await expect(page).toHaveURL(/login/);
  await expect(async () => {
    const answer = await shown.reload();
    expect(answer!.status()).toBe(403);
  }).toPass();
  await expect(shown.locator("body")).toContainText("This preview is not open");
  await Promise.all([shown.close(), other.close()]);
  // Their pages are of other origins, and what they attempted is refused with a word in the log.
  faults.length = 0;
});
