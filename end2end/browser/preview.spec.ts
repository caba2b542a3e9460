// The preview tab: listening ports, and a hostile page of a sandbox in the console.

import { expect, hydrated, logIn, test } from "./console";

const HOSTILE = `<!doctype html><title>x</title><h1>From the sandbox</h1><p id=report></p><script>
  const tried = [];
  const attempt = (name, act) => { try { act(); tried.push(name + " worked"); } catch (e) { tried.push(name + " refused"); } };
  attempt("parent", () => top.document.title);
  attempt("cookie", () => document.cookie);
  attempt("storage", () => localStorage.getItem("a"));
  attempt("navigation", () => { top.location.href = "about:blank#gone"; });
  const show = () => { document.getElementById("report").textContent = tried.join(", "); };
  fetch("/console/fn/sandboxes/list", { method: "POST", credentials: "include", body: "" })
    .then(() => tried.push("fetch worked"), () => tried.push("fetch refused")).then(show);
  show();
</script>`;

test("ports are found, and one is shown in a frame that cannot reach the console", async ({ page, api, faults }) => {
  const text = HOSTILE.replaceAll("'", "'\\''");
  const serve = `mkdir -p /srv/www; cd /srv/www; printf '%s' '${text}' > index.html; python3 -m http.server 8000`;
  const { id } = await api.create(["bash", "-c", serve]);
  await logIn(page, `/console/sandboxes/${id}/preview`);
  await hydrated(page);
  const row = page.locator(".port-list tbody tr").filter({ hasText: "8000" });
  await expect(async () => {
    if (!(await row.isVisible())) await page.getByRole("button", { name: "Check again" }).click();
    await expect(row).toContainText("python3", { timeout: 1_000 });
  }).toPass();
  await expect(page.locator(".port-list")).not.toContainText("44772");
  await row.getByRole("link", { name: "Preview port 8000" }).focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/port=8000$/);
  const frame = page.frameLocator("iframe[title='Port 8000 of this sandbox']");
  await expect(frame.getByRole("heading", { name: "From the sandbox" })).toBeVisible();
  await expect(frame.locator("#report")).toHaveText(
    "parent refused, cookie refused, storage refused, navigation refused, fetch refused",
  );
  await expect(page).toHaveURL(/port=8000$/);
  await expect(page.locator(".preview-url")).toHaveText(/^http:\/\/.*\/proxy\/8000\/$/);
  // The same as the server renders it.
  await page.reload();
  await hydrated(page);
  await expect(page.locator(".preview-url")).toHaveText(/^http:\/\/.*\/proxy\/8000\/$/);
  await expect(frame.getByRole("heading", { name: "From the sandbox" })).toBeVisible();
  // What the page of the sandbox attempted is refused with a word in the browser's log.
  faults.splice(0);
});

test("the overview of a sandbox names its listening ports, with ways to them", async ({ page, api, context, baseURL }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const { id } = await api.create(["python3", "-m", "http.server", "8000"]);
  await logIn(page, `/console/sandboxes/${id}`);
  await hydrated(page);
  const ports = page.getByRole("group", { name: "Programs that listen" });
  const addresses = ports.getByRole("link", { name: "Addresses of port 8000" });
  await expect(async () => {
    if (!(await addresses.isVisible())) await ports.getByRole("button", { name: "Check again" }).click();
    await expect(addresses).toBeVisible({ timeout: 1_000 });
  }).toPass();
  await expect(ports).toContainText("python3");
  await expect(ports).not.toContainText("44772");
  // The first port is the one whose addresses are shown.
  await expect(page.locator(".addresses")).toContainText("/proxy/8000");
  await expect(page).toHaveURL(/[0-9a-f]$/);
  const url = `${baseURL}/v1/sandboxes/${id}/proxy/8000/`;
  await ports.getByRole("button", { name: "Copy the URL of port 8000" }).press("Enter");
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe(url);
  const opened = context.waitForEvent("page");
  await ports.getByRole("link", { name: "Open port 8000" }).press("Enter");
  const other = await opened;
  await expect(other.getByRole("heading", { name: /Directory listing/ })).toBeVisible();
  expect(other.url()).toBe(url);
  await other.close();
  await addresses.press("Enter");
  await expect(page).toHaveURL(/port=8000/);
  await expect(page.locator(".addresses")).toContainText("/proxy/8000");
  await ports.getByRole("link", { name: "Preview port 8000" }).press("Enter");
  await expect(page.frameLocator("iframe").getByRole("heading", { name: /Directory listing/ })).toBeVisible();
});

test("a sandbox without listening programs says what to do", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/preview`);
  await hydrated(page);
  await expect(page.locator("main")).toContainText("No program of this sandbox listens");
  await page.getByRole("button", { name: "Check again" }).click();
  await expect(page.locator("main")).toContainText("No program of this sandbox listens");
});
