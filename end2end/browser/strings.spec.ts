// Every text that comes from outside is shown as text: names, labels, commands, files, output,
// titles, programs, accounts, reasons and addresses. A script that runs calls a function that must
// never be called; the pages' policy would stop it, and what the policy stops fails the test as well.

import type { Page } from "@playwright/test";
import { type Api, expect, hydrated, image, key, logIn, screen, test as base, type } from "./console";
import { HOSTILE, LINK, made, withoutScripts } from "./markup";

const test = withoutScripts(base);

/** Opens a page and waits until it is live and shows the text. */
async function shows(page: Page, path: string, text: string): Promise<void> {
  await page.goto(path);
  await hydrated(page);
  await expect(page.locator("#main")).toContainText(text);
  expect([path, ...(await made(page))]).toEqual([path]);
}

/** A value of a label or a name has few characters; these are some that a page could mistake. */
const LABEL = "a.b_c-javascript";

/** A sandbox of which every part is hostile that may be. */
async function hostileSandbox(api: Api): Promise<string> {
  const answer = await api.call("POST", "/sandboxes", {
    image: { uri: image },
    entrypoint: ["bash", "-c", 'printf "%s\\n" "$0" "$1"; exec tail -f /dev/null', HOSTILE, LINK],
    timeout: 900,
    resourceLimits: { cpu: "500m", memory: "256Mi" },
    env: { HOSTILE: HOSTILE },
    metadata: { suite: "browser", name: LABEL, [LABEL]: LABEL },
  });
  const { id } = (await answer.json()) as { id: string };
  return id;
}

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

test("what describes a sandbox, and what its programs print, is text", async ({ page, api }) => {
  const id = await hostileSandbox(api);
  await logIn(page);
  const here = `/console/sandboxes/${id}`;
  await shows(page, here, HOSTILE.slice(0, 30));
  await expect(page.locator(".entrypoint")).toContainText(HOSTILE.slice(0, 30));
  await shows(page, `/console/sandboxes?q=${id}`, LABEL);
  await shows(page, `${here}/logs`, HOSTILE);
  await expect(page.getByRole("region", { name: "Output" })).toContainText(LINK);
  await shows(page, `${here}/logs?q=pwned`, HOSTILE);
  await shows(page, `${here}/diagnostics`, "What happened");
  await page.goto(`/console/create?from=${id}`);
  await hydrated(page);
  await expect(page.getByLabel("Entry point")).toHaveValue(/<img src=x onerror=pwned\(\)>/);
  await expect(page.getByRole("complementary", { name: "Equivalent code" })).toContainText("pwned()");
  expect(await made(page)).toEqual([]);

  await page.goto(`${here}/run`);
  await hydrated(page);
  const command = `printf '%s\\n' ${quoted(HOSTILE)}; printf '\\033]0;%s\\007' ${quoted(HOSTILE)}; echo ${quoted(HOSTILE)} >&2; exit 9`;
  await page.getByLabel("Command", { exact: true }).fill(command);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("log", { name: "Output" }).locator("[data-stream=error]")).toContainText(HOSTILE);
  await expect(page.locator(".command-list > li").first()).toContainText("<img src=x onerror=pwned()>");
  expect(await made(page)).toEqual([]);

  await page.goto(`${here}/terminal`);
  await expect(page.locator(".terminal-bar")).toContainText("Connected");
  await type(page, `printf '\\e]2;%s\\a' ${quoted(HOSTILE)}; printf '\\e]8;;${LINK}\\aa link\\e]8;;\\a\\n'; echo set $((40+2))`);
  await expect.poll(() => screen(page)).toContain("set 42");
  await expect(page.locator(".terminal-title")).toContainText("<img src=x onerror=pwned()>");
  // The layer above the letters takes the click.
  const link = (await page.locator(".xterm-rows").getByText("a link").last().boundingBox())!;
  await page.mouse.click(link.x + link.width / 2, link.y + link.height / 2);
  expect(await made(page)).toEqual([]);
});

test("names, targets and contents of files, and names of programs, are text", async ({ page, api }) => {
  const { id } = await api.create();
  const name = "<img src=x onerror=pwned()>";
  const script = [
    `mkdir -p ${quoted(`/root/d/${name}`)}`,
    `cd /root/d`,
    `ln -s ${quoted(`"><svg onload=pwned()>`)} target`,
    `ln -s ${quoted(LINK)} ${quoted(LINK)}`,
    `printf %s ${quoted(HOSTILE)} > ${quoted(`${name}.txt`)}`,
    `printf %s ${quoted(HOSTILE)} > page.html`,
    `printf %s ${quoted(`<svg xmlns="http://www.w3.org/2000/svg" onload="pwned()"/>`)} > drawing.svg`,
    `cp "$(command -v python3)" ${quoted(`${name}`.slice(0, 15).replaceAll("/", "_") + "prog")}`,
  ].join("\n");
  await api.run(id, script);
  await logIn(page);
  const files = `/console/sandboxes/${id}/files?path=`;
  await shows(page, `${files}/root/d`, name);
  await expect(page.locator(".file-list")).toContainText("<svg onload=pwned()>");
  await shows(page, files + encodeURIComponent(`/root/d/${name}.txt`), HOSTILE);
  await page.getByRole("button", { name: "Edit" }).click();
  await page.locator("textarea").fill(`${HOSTILE}\n${HOSTILE}`);
  await page.getByRole("button", { name: "Review and save" }).click();
  await expect(page.getByRole("region", { name: "What changes" })).toContainText(HOSTILE);
  expect(await made(page)).toEqual([]);
  await page.getByRole("button", { name: "Back to the text" }).click();
  await page.getByRole("button", { name: "Discard" }).click();
  await shows(page, `${files}/root/d/page.html`, HOSTILE);
  await shows(page, `${files}/root/d/drawing.svg`, "onload");
  await shows(page, `${files}${encodeURIComponent(`/root/d/${name}/none`)}`, name);
  await page.goto(`${files}/root/d`);
  await hydrated(page);
  await page.locator(".file-list tbody tr").filter({ hasText: `${name}.txt` }).getByRole("button", { name: /^Delete/ }).click();
  await expect(page.getByRole("alertdialog")).toContainText(name);
  expect(await made(page)).toEqual([]);
  await page.keyboard.press("Escape");

  // The kernel cuts the name of a program after 15 characters.
  await api.run(id, `cd /root/d; nohup ./*prog -m http.server 8000 > /dev/null 2>&1 &`);
  await page.goto(`/console/sandboxes/${id}/preview`);
  await hydrated(page);
  const row = page.locator(".port-list tbody tr").filter({ hasText: "8000" });
  await expect(async () => {
    if (!(await row.isVisible())) await page.getByRole("button", { name: "Check again" }).click();
    await expect(row).toContainText("<img src=x", { timeout: 1_000 });
  }).toPass();
  expect(await made(page)).toEqual([]);
});

test("names of snapshots are text", async ({ page, api, sandbox }) => {
  const id = await api.snapshot(sandbox.id, HOSTILE);
  await logIn(page);
  await shows(page, "/console/snapshots", HOSTILE);
  await shows(page, `/console/snapshots/${id}`, HOSTILE);
  await shows(page, `/console/sandboxes/${sandbox.id}`, HOSTILE);
  await shows(page, `/console/create?snapshot=${id}`, HOSTILE);
  await page.goto("/console/snapshots");
  await hydrated(page);
  await page.getByRole("row").last().getByRole("button", { name: /^Delete/ }).click();
  await expect(page.getByRole("alertdialog")).toContainText(HOSTILE);
  expect(await made(page)).toEqual([]);
});

test("reasons, names of accounts and of keys, and entries of the trail are text", async ({ page, api, baseURL }) => {
  base.skip(key === "", "the first account of a server without a key would close it");
  await logIn(page);
  const failed = await api.create(["bash", "-c", 'echo "$0"; exit 3', HOSTILE], { name: "with-last-words" });
  const here = `/console/sandboxes/${failed.id}`;
  await page.goto(here);
  await hydrated(page);
  await expect(page.locator(".page-head")).toContainText("Failed");
  await expect(page.getByRole("region", { name: "Last output" })).toContainText(HOSTILE);
  expect(await made(page)).toEqual([]);
  await shows(page, `${here}/terminal`, "exit code 3");
  await shows(page, "/console", "with-last-words");

  const issued = await api.call("POST", "/api-keys", { name: HOSTILE.slice(0, 60), role: "read_only" });
  const { apiKey, secret } = (await issued.json()) as { apiKey: { id: string }; secret: string };
  try {
    await shows(page, "/console/access", HOSTILE.slice(0, 60));
    // What a client says of itself.
    await fetch(`${baseURL}/v1/sandboxes`, {
      headers: { "OPEN-SANDBOX-API-KEY": secret, "User-Agent": HOSTILE, "X-Request-ID": "<b>pwned()</b>" },
    });
    await shows(page, "/console/events", HOSTILE.slice(0, 60));
    for (let at = 0; at < 5; at += 1) {
      await page.locator(".events summary").nth(at).click();
      await expect(page.locator(".events .confirm-card").nth(at)).toBeVisible();
      expect(await made(page)).toEqual([]);
      await page.keyboard.press("Escape");
    }
  } finally {
    await api.call("DELETE", `/api-keys/${apiKey.id}`);
  }
});

test("no text of an address becomes code", async ({ page, sandbox, faults }) => {
  // Many pages.
  test.setTimeout(300_000);
  await logIn(page);
  const hostile = encodeURIComponent(HOSTILE);
  const link = encodeURIComponent(LINK);
  const here = `/console/sandboxes/${sandbox.id}`;
  const names = ["q", "find", "state", "sort", "page", "columns", "preset", "from", "port", "range", "table", "check"];
  const all = (value: string) => names.map((name) => `${name}=${value}`).join("&");
  const events = ["sandbox", "actor", "action", "outcome", "last", "since", "until", "cursor"];
  for (const value of [hostile, link]) {
    for (const path of [
      `/console?${all(value)}`,
      `/console/sandboxes?${all(value)}`,
      ...names.map((name) => `/console/sandboxes?${name}=${value}`),
      `/console/create?preset=${value}`,
      `/console/create?from=${value}`,
      `/console/events?${events.map((name) => `${name}=${value}`).join("&")}`,
      `/console/access?${all(value)}`,
      `/console/settings?${all(value)}`,
      `/console/create?snapshot=${value}`,
      `/console/snapshots?name=${value}&state=${value}&sandbox=${value}&page=${value}`,
      `/console/snapshots/${value}`,
      `/console/pools/${value}`,
      `/console/create?template=${value}`,
      `/console/templates?page=${value}`,
      `/console/templates/${value}`,
      `${here}?port=${value}`,
      `${here}/logs?q=${value}&wrap=${value}&times=${value}`,
      `${here}/metrics?range=${value}&table=${value}`,
      `${here}/files?path=${value}&from=${value}&page=${value}`,
      `${here}/preview?port=${value}`,
      `/console/sandboxes/${value}`,
      `/console/sandboxes/${value}/terminal`,
    ]) {
      await page.goto(path);
      await expect(page.getByRole("heading", { level: 1 })).toHaveCount(1);
      await hydrated(page);
      expect([path, ...(await made(page))]).toEqual([path]);
    }
    for (const path of [`/console/${value}`, `/console/login?next=${value}&failed=${value}`]) {
      await page.goto(path);
      await expect(page.getByRole("heading", { level: 1 })).toHaveCount(1);
      expect([path, ...(await made(page))]).toEqual([path]);
    }
  }
  // The browser logs the status of pages that do not exist, and what is no time.
  for (const fault of faults.splice(0)) expect(fault).toMatch(/status of 4\d\d|does not conform to the required format/);
});
