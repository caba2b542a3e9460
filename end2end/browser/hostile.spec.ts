// A page that a sandbox serves through the server's proxy shares the console's address but must not
// share its origin: it can neither read the console nor act on it.

import { expect, logIn, test } from "./console";

const ATTACK = `<!doctype html><title>hostile</title><pre id=report></pre>
<form method=post action="/console/sandboxes/VICTIM/delete"><button>send</button></form>
<script>
const found = {};
const attempt = async (name, act) => { try { found[name] = String(await act()); } catch (e) { found[name] = "refused"; } };
(async () => {
  await attempt("origin", () => self.origin);
  await attempt("cookie", () => document.cookie);
  await attempt("storage", () => localStorage.length);
  await attempt("page", async () => (await fetch("/console/sandboxes", { credentials: "include" })).text());
  await attempt("call", async () => (await fetch("/console/fn/sandboxes/list", {
    method: "POST", credentials: "include", body: new URLSearchParams({ "query[q]": "" }) })).text());
  await attempt("blind", async () => (await fetch("/console/sandboxes/VICTIM/delete", {
    method: "POST", mode: "no-cors", credentials: "include" })).type);
  await attempt("socket", () => new Promise((yes, no) => {
    const socket = new WebSocket("ws://" + location.host + "/console/live");
    socket.onmessage = (event) => yes(event.data);
    socket.onerror = () => no();
  }));
  await attempt("frame", () => new Promise((yes, no) => {
    const frame = document.createElement("iframe");
    frame.onload = () => { try { yes(frame.contentDocument.body.innerText); } catch { no(); } };
    frame.src = "/console/sandboxes";
    document.body.append(frame);
    setTimeout(no, 3000);
  }));
  document.getElementById("report").textContent = JSON.stringify(found);
})();
</script>`;

/** Answers every request with /tmp/page. Perl is in every Debian image. */
const SERVER = `perl -MIO::Socket::INET -e '
  $server = IO::Socket::INET->new(LocalPort => 8000, Listen => 9, ReuseAddr => 1) or die;
  while ($client = $server->accept) {
    while (<$client>) { last if /^\\r?\\n/ }
    open F, "/tmp/page"; local $/; $page = <F>;
    print $client "HTTP/1.1 200 OK\\r\\nContent-Type: text/html\\r\\nConnection: close\\r\\nContent-Length: ", length $page, "\\r\\n\\r\\n", $page;
    close $client;
  }'`;

test("a hostile page reads nothing and deletes nothing", async ({ page, api, faults }) => {
  const victim = await api.create();
  const attack = ATTACK.replaceAll("VICTIM", victim.id);
  const host = await api.create(["bash", "-c", `cat > /tmp/page <<'END'\n${attack}\nEND\n${SERVER}`]);
  await logIn(page);
  const address = `/v1/sandboxes/${host.id}/proxy/8000/index.html`;
  await expect.poll(async () => (await page.request.get(address)).status()).toBe(200);

  const response = await page.goto(address);
  const policy = response!.headers()["content-security-policy"] ?? "";
  expect(policy).toContain("sandbox");
  expect(policy).not.toContain("allow-same-origin");
  const report = page.locator("#report");
  await expect(report).toContainText("{");
  const found = JSON.parse(await report.innerText()) as Record<string, string>;
  expect(found.origin).toBe("null");
  for (const name of ["cookie", "storage", "page", "call", "socket", "frame"]) {
    expect([name, found[name]]).toEqual([name, "refused"]);
  }
  const answer = page.waitForResponse((it) => it.url().endsWith("/delete"));
  await page.getByRole("button", { name: "send" }).click();
  expect((await answer).status()).toBe(403);

  // The blind writes were sent; the victim must still run.
  const now = await api.call("GET", `/sandboxes/${victim.id}`);
  expect(((await now.json()) as { status: { state: string } }).status.state).toBe("Running");
  // The browser logs each refused request as an error, which this test expects. The last one may
  // still be pending, so the page is closed before the faults are dropped.
  await page.close();
  faults.length = 0;
});
