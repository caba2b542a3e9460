// The create page: presets, suggestions, rows, and what is wrong with a form.

import type { Page } from "@playwright/test";
import { expect, hydrated, image, logIn, tabTo, test } from "./console";

/** Types a label into the row that is free. */
async function addLabel(page: Page, name: string, value: string): Promise<void> {
  await page.getByLabel("Label name").last().fill(name);
  await page.getByLabel(`Value of ${name}`).fill(value);
}

test("the form reports mistakes while the user types", async ({ page }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  await page.getByLabel("Lifetime").selectOption({ label: "Another time …" });
  await page.getByLabel("Time to live").fill("5s");
  await expect(page.locator("#ttl-problem")).toHaveText("A sandbox lives for at least 1 minute.");
  await page.getByLabel("Time to live").fill("10m");
  await expect(page.locator("#ttl-problem")).toBeEmpty();
  // Rules between fields are checked once every field is well formed.
  await page.getByLabel("Image").fill(image);
  await addLabel(page, "bad key!", "x");
  await expect(page.locator("#metadata-problem")).not.toBeEmpty();
  await page.getByRole("button", { name: "Delete bad key!" }).click();
  await expect(page.locator("#metadata-problem")).toBeEmpty();
  await expect(page.getByLabel("Label name")).toBeFocused();
  await page.getByLabel("Image").fill("");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page.locator("#image-problem")).toHaveText("Name an image, such as debian:bookworm-slim.");
  const summary = page.getByRole("region", { name: "The sandbox was not created" });
  await expect(summary).toBeFocused();
  await expect(summary).toBeInViewport();
  await summary.getByRole("link", { name: "Image" }).press("Enter");
  await expect(page.getByLabel("Image")).toBeFocused();
  await expect(page).toHaveURL(/\/console\/create$/);
});

test("mistakes are reported without the server's answer, too", async ({ page, faults }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  await page.route(/\/fn\/sandboxes\/check/, (route) => route.abort());
  await page.getByLabel("Memory").fill("lots");
  await expect(page.locator("#memory-problem")).toContainText("512Mi");
  await page.getByLabel("Memory").fill("1Gi");
  await expect(page.locator("#memory-problem")).toBeEmpty();
  await expect.poll(() => faults.splice(0).every((fault) => fault.includes("ERR_FAILED"))).toBe(true);
});

test("a limit above the memory of the host is pointed out, and accepted", async ({ page }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  const help = page.locator("#memory-help");
  await page.getByLabel("Memory").fill("4000Gi");
  await expect(help).toContainText(/More than this host has \([0-9.]+ [GT]iB\)/);
  await expect(page.locator("#memory-problem")).toBeEmpty();
  await page.getByLabel("Memory").fill("512Mi");
  await expect(help).toHaveText("512Mi, 2Gi … Empty: no limit.");
});

test("a refused form reports all kinds of mistakes at once, mended with the keyboard only", async ({ page, api }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  await page.getByLabel("Image").fill(image);
  await page.getByLabel("Entry point").fill("sh -c 'sleep");
  await page.getByLabel("CPU").fill("fast");
  await addLabel(page, "suite", "browser");
  await addLabel(page, "bad!", "x");
  await page.getByRole("button", { name: "Create", exact: true }).press("Enter");
  const summary = page.getByRole("region", { name: "The sandbox was not created" });
  await expect(summary).toBeFocused();
  await expect(summary.getByRole("link")).toHaveText(["Entry point", "CPU", "Labels"]);
  await expect(summary).toContainText("a quote that is not closed");
  await expect(summary).not.toContainText("required");
  // Each link leads to its field, whose message is read with it.
  for (const [field, text] of [
    [page.getByLabel("Entry point"), "sleep 60"],
    [page.getByLabel("CPU"), "1"],
    [page.getByLabel("Label name").nth(1), "good"],
  ] as const) {
    await summary.getByRole("link").first().focus();
    await page.keyboard.press("Enter");
    await expect(field).toBeFocused();
    await expect(field).toHaveAttribute("aria-invalid", "true");
    await expect(field).toHaveAccessibleDescription(/\w/);
    await page.keyboard.press("ControlOrMeta+a");
    await page.keyboard.type(text);
    await expect(field).not.toHaveAttribute("aria-invalid", "true");
  }
  await expect(summary).toHaveCount(0);
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.locator(".page-head")).toContainText("Running");
  expect(await api.mine()).toContain(page.url().split("/").pop());
});

test("a lifetime that cannot be read is not shown as code without one", async ({ page }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  const code = page.getByRole("complementary", { name: "Equivalent code" });
  await expect(code).toContainText("\"timeout\": 1800");
  await page.getByLabel("Lifetime").selectOption({ label: "Another time …" });
  await expect(code).toContainText("Lifetime: Write a duration");
  await page.getByLabel("Time to live").fill("soon");
  await expect(code).toContainText("Lifetime: Write a duration");
  await expect(code).not.toContainText("timeout");
  await expect(code).not.toContainText("curl");
  await page.getByLabel("Time to live").fill("1h");
  await expect(code).toContainText("\"timeout\": 3600");
  await page.getByLabel("Lifetime").selectOption({ label: "Until it is deleted" });
  await expect(page.getByLabel("Time to live")).toBeHidden();
  await expect(code).not.toContainText("\"timeout\"");
});

test("a preset is chosen with the keyboard and becomes a sandbox", async ({ page, api }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  const shell = page.getByRole("link", { name: "Shell" });
  await shell.focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/preset=shell/);
  await expect(shell).toHaveAttribute("aria-current", "true");
  await expect(page.getByLabel("Image")).toHaveValue("opensandbox/base:latest");
  // What belongs to no image stays when another preset is chosen, and when the user goes back.
  await page.getByLabel("Name", { exact: true }).fill("from-a-preset");
  await page.getByRole("link", { name: "Debian A small" }).click();
  await expect(page.getByLabel("Image")).toHaveValue("debian:bookworm-slim");
  await page.goBack();
  await expect(page.getByLabel("Image")).toHaveValue("opensandbox/base:latest");
  await expect(page.getByLabel("Name", { exact: true })).toHaveValue("from-a-preset");
  await page.getByLabel("Image").fill(image);
  await expect(page.locator("#image-help")).toContainText("On this host");
  await page.getByLabel("Image").fill("no-such-image:1");
  await expect(page.locator("#image-help")).toContainText("Not on this host");
  await page.getByLabel("Image").fill(image);
  await expect(page.locator(`#images option[value="${image}"]`)).toHaveCount(1);
  await addLabel(page, "suite", "browser");
  await page.getByLabel("Image").press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.locator(".page-head")).toContainText("Running");
  const id = page.url().split("/").pop()!;
  const made = await (await api.call("GET", `/sandboxes/${id}`)).json();
  expect(made.metadata).toEqual({ name: "from-a-preset", suite: "browser" });
});

test("each preset whose image is on this host makes a sandbox, by keyboard", async ({ page, api }) => {
  test.slow();
  await logIn(page, "/console/create");
  await hydrated(page);
  const here = page.locator(".preset").filter({ has: page.locator('[data-mark="here"]') });
  const presets = await here.evaluateAll((links) => links.map((link) => link.getAttribute("href")!));
  expect(presets.length).toBeGreaterThan(0);
  for (const preset of presets) {
    await page.goto("/console/create");
    await hydrated(page);
    await tabTo(page, page.locator(`.preset[href="${preset}"]`));
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(new RegExp(`${preset.replace("?", "\\?")}$`));
    await tabTo(page, page.getByLabel("Label name").last());
    await page.keyboard.type("suite");
    await page.keyboard.press("Tab");
    await page.keyboard.type("browser");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
    await expect(page.locator(".page-head")).toContainText("Running");
    await api.remove(page.url().split("/").pop()!);
  }
});

test("a preset is chosen, named and started with keys alone, from the list on", async ({ page, api }) => {
  await logIn(page, "/console/sandboxes");
  await hydrated(page);
  await page.keyboard.press("c");
  await expect(page).toHaveURL(/\/console\/create$/);
  const preset = page.locator(".preset").filter({ has: page.locator('[data-mark="here"]') }).first();
  await tabTo(page, preset);
  await page.keyboard.press("Enter");
  await expect(preset).toHaveAttribute("aria-current", "true");
  await tabTo(page, page.getByLabel("Name", { exact: true }));
  await page.keyboard.type("by-keys");
  await tabTo(page, page.getByLabel("Lifetime"));
  await page.keyboard.type("10");
  await expect(page.getByLabel("Lifetime")).toHaveValue("600");
  await tabTo(page, page.getByLabel("Label name").last());
  await page.keyboard.type("suite");
  await page.keyboard.press("Tab");
  await page.keyboard.type("browser");
  await tabTo(page, page.getByRole("button", { name: "Create", exact: true }));
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("by-keys");
  await expect(page.locator(".page-head")).toContainText("Running");
  expect(await api.mine()).toContain(page.url().split("/").pop());
});

test("a form that was not sent survives navigation, Back and a reload, without secrets", async ({ page }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  const name = page.getByLabel("Name", { exact: true });
  const rail = page.getByRole("navigation", { name: "Main" });
  const leave = () => rail.getByRole("link", { name: "Sandboxes" }).click();
  const note = page.locator(".unsent");
  await name.fill("drafted");
  await page.getByLabel("Image").fill(image);
  await page.getByLabel("Entry point", { exact: true }).fill("sh -c 'exit 1'");
  await page.getByLabel("Lifetime").selectOption("3600");
  await page.getByLabel("Variable name").fill("TOKEN");
  await page.getByLabel("Value of TOKEN").fill("hunter2");
  await addLabel(page, "team", "drafts");
  await expect(note).toHaveCount(0);
  await leave();
  await expect(page).toHaveURL(/\/console\/sandboxes$/);
  const isThere = async () => {
    await expect(note).toContainText("Type again what is not kept: the values of TOKEN.");
    await expect(name).toHaveValue("drafted");
    await expect(page.getByLabel("Image")).toHaveValue(image);
    await expect(page.getByLabel("Entry point", { exact: true })).toHaveValue("sh -c 'exit 1'");
    await expect(page.getByLabel("Lifetime")).toHaveValue("3600");
    await expect(page.getByLabel("Value of team")).toHaveValue("drafts");
    await expect(page.getByLabel("Value of TOKEN")).toHaveValue("");
  };
  await page.goBack();
  await isThere();
  expect(await page.evaluate(() => JSON.stringify({ ...sessionStorage }))).not.toContain("hunter2");
  await leave();
  await rail.getByRole("link", { name: "Create" }).click();
  await isThere();
  await page.reload();
  await hydrated(page);
  await isThere();
  // A value that was lost does not become an empty one.
  await name.press("Enter");
  const summary = page.getByRole("region", { name: "The sandbox was not created" });
  await expect(summary).toContainText("The value of TOKEN was not kept: type it again, or delete TOKEN.");
  await expect(page).toHaveURL(/\/console\/create$/);
  await page.getByLabel("Value of TOKEN").fill("hunter2");
  await expect(page.locator("#env-problem")).toBeEmpty();
  await note.getByRole("button", { name: "Discard draft" }).press("Enter");
  await expect(note).toHaveCount(0);
  await expect(name).toBeFocused();
  await expect(name).toHaveValue("");
  await expect(page.getByLabel("Image")).toHaveValue("");
  await expect(page.getByLabel("Value of team")).toHaveCount(0);
  await leave();
  await page.goBack();
  await expect(name).toHaveValue("");
  await expect(note).toHaveCount(0);
});

test("a form that was sent is no draft any more, and a preset keeps the rest of one", async ({ page }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  const name = page.getByLabel("Name", { exact: true });
  await name.fill("kept");
  await page.goto("/console/create?preset=debian");
  await hydrated(page);
  await expect(name).toHaveValue("kept");
  await expect(page.getByLabel("Image")).toHaveValue("debian:bookworm-slim");
  await page.getByLabel("Image").fill(image);
  await addLabel(page, "suite", "browser");
  await name.press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await page.goto("/console/create");
  await hydrated(page);
  await expect(name).toHaveValue("");
  await expect(page.locator(".unsent")).toHaveCount(0);
});

test("variables are typed in rows or as text, and neither loses one", async ({ page }) => {
  await logIn(page, "/console/create");
  await hydrated(page);
  const group = page.getByRole("group", { name: "Environment" });
  const code = page.getByRole("complementary", { name: "Equivalent code" });
  await group.getByLabel("Variable name").fill("A");
  await page.keyboard.press("Tab");
  await page.keyboard.type("it's = \"1\"");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.type("B");
  await expect(group.getByLabel("Variable name")).toHaveCount(3);
  await group.getByRole("button", { name: "Edit as text" }).click();
  const text = group.getByRole("textbox", { name: "Environment" });
  await expect(text).toHaveValue("A=it's = \"1\"\nB=");
  await text.fill("A=1\nC=3\nD");
  await expect(page.locator("#env-problem")).toContainText("Line 3");
  await text.fill("A=1\nC=3");
  await group.getByRole("button", { name: "Edit as rows" }).click();
  await expect(group.getByLabel("Value of C")).toHaveValue("3");
  await group.getByRole("button", { name: "Delete A" }).press("Enter");
  await expect(group.getByLabel("Variable name").first()).toBeFocused();
  await expect(code).toContainText('env={"C": "3"}');
});

test("what was typed before the page was live is kept", async ({ page }) => {
  await logIn(page, "/console/sandboxes");
  let release = () => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  await page.route(/osb_bg\.wasm$/, async (route) => {
    await held;
    await route.continue();
  });
  await page.goto("/console/create", { waitUntil: "commit" });
  await page.getByLabel("Image").fill("typed:early");
  await page.getByLabel("Variable name").fill("EARLY");
  release();
  await hydrated(page);
  const code = page.getByRole("complementary", { name: "Equivalent code" });
  await expect(code).toContainText("typed:early");
  await expect(code).toContainText("EARLY");
});

for (const width of [360, 768, 1440]) {
  test(`the create page fits into ${width} px`, async ({ page }) => {
    await page.setViewportSize({ width, height: 900 });
    await logIn(page, "/console/create?preset=browser");
    await hydrated(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide).toBeLessThanOrEqual(width);
  });
}

test("a clone takes over values that never reach the browser", async ({ page, api }) => {
  const answer = await api.call("POST", "/sandboxes", {
    image: { uri: image },
    entrypoint: ["sh", "-c", 'echo "the token is $TOKEN"; exec tail -f /dev/null'],
    timeout: 3600,
    resourceLimits: { cpu: "500m", memory: "256Mi" },
    env: { TOKEN: "hunter2", UNUSED: "hunter3" },
    metadata: { suite: "browser", name: "original" },
  });
  const { id } = (await answer.json()) as { id: string };
  const seen: Promise<string>[] = [];
  page.on("response", (response) => {
    if (/html|json/.test(response.headers()["content-type"] ?? "")) seen.push(response.text().catch(() => ""));
  });
  await logIn(page, `/console/sandboxes?q=${id}`);
  await hydrated(page);
  await page.getByRole("link", { name: `Clone ${id.slice(0, 8)}` }).click();
  await expect(page).toHaveURL(new RegExp(`from=${id}`));
  await expect(page.getByLabel("Name", { exact: true })).toHaveValue("original-copy");
  await expect(page.getByLabel("Image")).toHaveValue(image);
  await expect(page.getByLabel("Lifetime")).toHaveValue("3600");
  await expect(page.getByLabel("Value of suite")).toHaveValue("browser");
  const kept = page.locator(".kept li");
  await expect(kept).toHaveText(["TOKEN", "UNUSED"]);
  await kept.getByRole("button", { name: "Delete UNUSED" }).click();
  await expect(kept).toHaveText(["TOKEN"]);
  const code = page.getByRole("complementary", { name: "Equivalent code" });
  await expect(code).toContainText("The code lacks these variables, whose values stay on the server: TOKEN.");
  await page.getByRole("button", { name: "Create", exact: true }).press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.locator(".page-head")).toContainText("Running");
  const copy = page.url().split("/").pop()!;
  expect((await Promise.all(seen)).join("\n")).not.toContain("hunter");
  const made = await (await api.call("GET", `/sandboxes/${copy}`)).json();
  expect(made.metadata).toEqual({ name: "original-copy", suite: "browser" });
  // Only the copy's own output has it.
  await page.getByRole("link", { name: "Logs" }).click();
  await expect(page.locator("#main")).toContainText("the token is hunter2");
});

test("the code has four languages, chosen with the arrow keys", async ({ page }) => {
  await logIn(page, "/console/create?preset=debian");
  await hydrated(page);
  const code = page.getByRole("complementary", { name: "Equivalent code" });
  // Without script all four are shown.
  await expect(code.locator("pre:visible")).toHaveCount(1);
  await expect(code.locator("pre:visible")).toContainText("curl -X POST");
  await code.getByRole("radio", { name: "curl" }).focus();
  for (const part of ["sandbox create", "from opensandbox import", "await Sandbox.create"]) {
    await page.keyboard.press("ArrowRight");
    await expect(code.locator("pre:visible")).toHaveCount(1);
    await expect(code.locator("pre:visible")).toContainText(part);
  }
  await page.getByLabel("Name", { exact: true }).fill("it's");
  await expect(code.locator("pre:visible")).toContainText('"name": "it\'s"');
});

test("the request is edited as JSON, which fills the form in", async ({ page, api }) => {
  await logIn(page, "/console/create?preset=debian");
  await hydrated(page);
  const part = (title: string) => page.locator("details.advanced").filter({ has: page.getByText(title, { exact: true }) });
  await part("As JSON").locator("summary").press("Enter");
  const json = page.getByLabel("The request as JSON");
  // It follows the form until it is edited.
  await page.getByLabel("Name", { exact: true }).fill("from-json");
  await expect(json).toHaveValue(/"name": "from-json"/);
  await json.fill('{"image": "debian"}');
  const fill = page.getByRole("button", { name: "Fill the form in" });
  await fill.press("Enter");
  await expect(page.locator("#json-problem")).toContainText("image has to be an object");
  await json.fill('{"image": {"uri": "a"}, "metadata": {"name": " b "}}');
  await fill.press("Enter");
  await expect(page.locator("#json-problem")).toContainText("cannot have this as it is written: metadata.name.");
  await expect(json).toBeFocused();
  await expect(page.getByLabel("Name", { exact: true })).toHaveValue("from-json");
  // A field that cannot be read is not in the JSON, which therefore does not replace the form.
  const entrypoint = page.getByLabel("Entry point", { exact: true });
  const before = await entrypoint.inputValue();
  await page.getByRole("button", { name: "Discard the changes" }).press("Enter");
  await entrypoint.fill("sh -c 'not closed");
  await expect(json).not.toHaveValue(/entrypoint/);
  await json.fill('{"image": {"uri": "other"}}');
  await expect(page.locator("#json-problem")).toContainText("would be lost: Entry point.");
  await expect(fill).toHaveAttribute("aria-disabled", "true");
  await fill.press("Enter");
  await expect(entrypoint).toHaveValue("sh -c 'not closed");
  // The text lacks it also when it is mended since.
  await entrypoint.fill(before);
  await expect(page.locator("#json-problem")).toContainText("would be lost: Entry point.");
  await page.getByRole("button", { name: "Discard the changes" }).press("Enter");
  await expect(json).toHaveValue(/entrypoint/);
  await expect(page.locator("#json-problem")).toBeEmpty();
  const request = {
    image: { uri: image, auth: { username: "zoe", password: "xyzzy-plugh" } },
    entrypoint: ["sh", "-c", "exec tail -f /dev/null"],
    timeout: 900,
    resourceLimits: { cpu: "500m", memory: "256Mi" },
    env: { A: "1", B: "x=y" },
    metadata: { suite: "browser", name: "made-from-json" },
    extensions: { "access.renew.extend.seconds": "600" },
    platform: { os: "plan9", arch: "amd64" },
  };
  await json.fill(JSON.stringify(request));
  await fill.press("Enter");
  await expect(page.getByLabel("Name", { exact: true })).toHaveValue("made-from-json");
  await expect(page.locator("#json-done")).toContainText("No field has platform: see Further members.");
  await expect(page.getByLabel("Entry point", { exact: true })).toHaveValue("sh -c 'exec tail -f /dev/null'");
  await expect(page.getByLabel("Lifetime")).toHaveValue("other");
  await expect(page.getByLabel("Time to live")).toHaveValue("900s");
  await expect(page.getByLabel("Value of B")).toHaveValue("x=y");
  await expect(page.getByLabel("Value of suite")).toHaveValue("browser");
  // No code has the password.
  const code = page.getByRole("complementary", { name: "Equivalent code" });
  await expect(code).toContainText("REGISTRY_PASSWORD");
  await expect(code).not.toContainText("xyzzy-plugh");
  await expect(json).toHaveValue(/REGISTRY_PASSWORD/);
  // What has no field is checked by the server's rules, and its part is unfolded.
  const more = page.getByLabel("Further members");
  await expect(page.locator("#more-problem")).toContainText(/platform/);
  await expect(more).toBeVisible();
  await expect(more).toHaveValue(/plan9/);
  await expect(page.getByLabel("Registry password")).toHaveValue("xyzzy-plugh");
  await page.getByLabel("Registry user").fill("");
  await page.getByLabel("Registry password").fill("");
  await more.fill("");
  await expect(page.locator("#more-problem")).toBeEmpty();
  await page.getByRole("button", { name: "Create", exact: true }).press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  await expect(page.locator(".toast")).toContainText("made-from-json is being created");
  const made = await (await api.call("GET", `/sandboxes/${page.url().split("/").pop()!}`)).json();
  expect(made.metadata).toEqual(request.metadata);
  expect(made.entrypoint).toEqual(request.entrypoint);
});

test("advanced fields are folded, and a mistake unfolds them", async ({ page, api }) => {
  await logIn(page, "/console/create?preset=debian");
  await hydrated(page);
  const advanced = page.locator("details.advanced").filter({ has: page.getByText("Advanced", { exact: true }) });
  await expect(page.getByLabel("Registry user")).toBeHidden();
  await page.getByLabel("Image").fill(image);
  await page.getByLabel("Label name").last().fill("suite");
  await page.getByLabel("Value of suite").fill("browser");
  await advanced.locator("summary").press("Enter");
  await page.getByLabel("Registry user").fill("zoe");
  await page.getByLabel("Extension name").fill("access.renew.extend.seconds");
  await page.getByLabel("Value of access.renew.extend.seconds").fill("soon");
  await advanced.locator("summary").press("Enter");
  await expect(page.getByLabel("Registry user")).toBeHidden();
  await page.getByRole("button", { name: "Create", exact: true }).press("Enter");
  const summary = page.getByRole("region", { name: "The sandbox was not created" });
  await expect(summary).toContainText("Registry");
  await expect(summary).toContainText("Extensions");
  await expect(page.getByLabel("Registry user")).toBeVisible();
  await summary.getByRole("link", { name: "Extensions" }).press("Enter");
  await expect(page.getByLabel("Value of access.renew.extend.seconds")).toBeVisible();
  await page.getByLabel("Value of access.renew.extend.seconds").fill("600");
  await page.getByLabel("Registry user").fill("");
  await expect(page.locator("#extensions-problem")).toBeEmpty();
  await page.getByRole("button", { name: "Create", exact: true }).press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  expect(await api.mine()).toContain(page.url().split("/").pop());
});

test("a copy keeps the line breaks of a command", async ({ page, api }) => {
  const script = "cat > /tmp/x <<'END'\none\ntwo\nEND\nexec tail -f /dev/null";
  const { id } = await api.create(["bash", "-c", script]);
  await logIn(page, `/console/create?from=${id}`);
  await hydrated(page);
  await expect(page.getByLabel("Entry point")).toHaveValue(/\none\ntwo\nEND\n/);
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  const copy = page.url().split("/").pop()!;
  await expect(page.locator(".page-head")).toContainText("Running");
  const made = (await (await api.call("GET", `/sandboxes/${copy}`)).json()) as { entrypoint: string[] };
  expect(made.entrypoint).toEqual(["bash", "-c", script]);
});
