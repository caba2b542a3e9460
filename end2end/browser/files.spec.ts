// The files tab: folders, files, editing, uploads and downloads.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page, Route } from "@playwright/test";
import { expect, hydrated, logIn, test } from "./console";
import { entry, open, withFiles } from "./files";

test("folders are walked with links, keys and Back, and links lead where they lead", async ({ page, api }) => {
  const hostile = "<img src=x onerror=alert(1)>";
  const { id } = await withFiles(
    api,
    `mkdir -p 'a b/c'; echo deep > 'a b/c/deep.txt'; ln -s 'a b' to-folder; ln -s nowhere dangling; touch '${hostile}'; mkfifo pipe`,
  );
  await open(page, id, "/");
  await expect(page.getByRole("heading", { level: 1 })).toHaveCount(1);
  await page.getByRole("link", { name: "root", exact: true }).focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/path=\/root$/);
  await expect(entry(page, "a b")).toContainText("rwxr-xr-x");
  await expect(page.locator(".f-target").first()).toContainText("→");
  await expect(page.locator(".file-list").getByText(hostile)).toBeVisible();
  expect(await page.locator(".file-list img").count()).toBe(0);
  await page.getByRole("link", { name: "to-folder", exact: true }).click();
  await page.getByRole("link", { name: "c", exact: true }).click();
  await page.getByRole("link", { name: "deep.txt", exact: true }).click();
  await expect(page.locator(".file-text")).toContainText("deep");
  await page.goBack();
  await expect(entry(page, "deep.txt")).toBeVisible();
  await page.getByRole("navigation", { name: "Folders" }).getByRole("link", { name: "root", exact: true }).click();
  await page.getByRole("link", { name: "pipe", exact: true }).click();
  await expect(page.locator("main")).toContainText("is a device, a pipe or a socket");
  await page.goto(`/console/sandboxes/${id}/files?path=/root/none`);
  await expect(page.locator("main")).toContainText("There is nothing at /root/none.");
  await page.getByRole("link", { name: "Root folder" }).click();
  await expect(entry(page, "etc")).toBeVisible();
});

test("a name with percent signs is that file's, and CRLF stays", async ({ page, api }) => {
  const { id } = await withFiles(api, "printf space > 'a b'; printf percent > 'a%20b'; printf 'one\\r\\ntwo\\r\\n' > dos.txt");
  await open(page, id);
  await page.getByRole("link", { name: "a%20b", exact: true }).click();
  await expect(page.locator(".file-text")).toContainText("percent");
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Text of a%20b" }).fill("changed");
  await page.getByRole("button", { name: "Review and save" }).click();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.locator(".file-text")).toContainText("changed");
  await page.goBack();
  await page.getByRole("link", { name: "a b", exact: true }).click();
  await expect(page.locator(".file-text")).toContainText("space");
  await page.goto(`/console/sandboxes/${id}/files?path=/root/dos.txt`);
  await hydrated(page);
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Text of dos.txt" }).fill("one\ntwo!\n");
  await page.getByRole("button", { name: "Review and save" }).click();
  await expect(page.getByRole("region", { name: "What changes" })).toContainText("1 added, 1 removed");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.locator(".file-text")).toContainText("two!");
  const written = await page.request.get(`/console/sandboxes/${id}/files/download?path=/root/dos.txt`);
  expect(await written.text()).toBe("one\r\ntwo!\r\n");
});

test("a file is edited, its difference is shown before it is saved, and a change meanwhile is not lost", async ({
  page,
  api,
}) => {
  const { id } = await withFiles(api, "seq 1 40 > numbers.txt; chmod 640 numbers.txt");
  await open(page, id, "/root/numbers.txt");
  await page.getByRole("button", { name: "Edit" }).focus();
  await page.keyboard.press("Enter");
  const area = page.getByRole("textbox", { name: "Text of numbers.txt" });
  await expect(area).toBeFocused();
  await expect(page.getByRole("button", { name: "Review and save" })).toBeDisabled();
  await page.keyboard.press("Control+Home");
  await page.keyboard.type("zero <b>&\n");
  // What was typed is there after a reload.
  await page.reload();
  await hydrated(page);
  await page.getByRole("button", { name: "Edit" }).click();
  await expect(page.getByRole("status").filter({ hasText: "have not saved" })).toBeVisible();
  await expect(area).toHaveValue(/^zero <b>&\n1\n2\n/);
  await area.focus();
  await page.keyboard.press("Control+s");
  const difference = page.getByRole("region", { name: "What changes" });
  await expect(difference).toContainText("1 added, 0 removed");
  await expect(difference.locator("[data-kind=added]")).toContainText("zero <b>&");
  await page.getByRole("button", { name: "Save", exact: true }).focus();
  await page.keyboard.press("Enter");
  await expect(page.locator(".file-text")).toContainText("zero <b>&");
  await expect(page.locator(".file-facts")).toContainText("rw-r-----");

  await page.getByRole("button", { name: "Edit" }).click();
  await area.fill("mine\n");
  // Another program writes the file.
  const other = await page.context().newPage();
  await other.goto(`/console/sandboxes/${id}/run`);
  await hydrated(other);
  await other.getByLabel("Command", { exact: true }).fill("echo theirs > /root/numbers.txt");
  await other.keyboard.press("Enter");
  await expect(other.locator(".run-result")).toContainText("Exit 0");
  await other.close();
  await page.getByRole("button", { name: "Review and save" }).click();
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.getByRole("alert").filter({ hasText: "changed since you opened it" })).toBeVisible();
  await expect(difference.locator("[data-kind=removed]")).toContainText("theirs");
  await page.getByRole("button", { name: "Overwrite it" }).click();
  await expect(page.locator(".file-text > pre").last()).toHaveText("mine\n");
});

/** The texts that are painted as one kind of code. */
const painted = (page: Page, kind: string) =>
  page.evaluate((kind) => {
    const ranges = [...(CSS.highlights.get(`code-${kind}`) ?? [])] as StaticRange[];
    return ranges.map((it) => it.startContainer.textContent!.slice(it.startOffset, it.endOffset));
  }, kind);

test("code is coloured by its language, and stays text", async ({ page, api }) => {
  const { id } = await withFiles(
    api,
    [
      "printf 'import os  # all of <b>os</b>\n\n\ndef size(path):\n    return \"<img src=x>\" + path\n' > size.py",
      "printf '#!/usr/bin/env bash\nif true; then echo 1; fi\n' > script",
      "echo 'import os' > notes.txt",
      "(for i in {1..9000}; do echo \"def f$i(): return 'v$i'\"; done) > long.py",
    ].join("; "),
  );
  await open(page, id, "/root/size.py");
  await expect.poll(() => painted(page, "keyword")).toEqual(["import", "def", "return"]);
  expect(await painted(page, "comment")).toEqual(["# all of <b>os</b>"]);
  expect(await painted(page, "text")).toEqual(['"<img src=x>"']);
  expect(await page.locator(".file-text img, .file-text b").count()).toBe(0);
  const colour = await page.evaluate(() => {
    const code = document.querySelector(".file-text > pre:last-child")!;
    const of = (name?: string) => getComputedStyle(code, name).color;
    return { keyword: of("::highlight(code-keyword)"), plain: of() };
  });
  expect(colour.keyword).not.toBe(colour.plain);
  // A file of another language, reached without a load.
  const folder = page.getByRole("navigation", { name: "Folders" }).getByRole("link", { name: "root", exact: true });
  await folder.click();
  await page.getByRole("link", { name: "script", exact: true }).click();
  await expect.poll(() => painted(page, "keyword")).toEqual(["if", "then", "fi"]);
  await folder.click();
  await page.getByRole("link", { name: "notes.txt", exact: true }).click();
  await expect(page.locator(".file-text")).toContainText("import os");
  await expect.poll(() => painted(page, "keyword")).toEqual([]);
  await folder.click();
  await page.getByRole("link", { name: "long.py", exact: true }).click();
  await expect.poll(async () => (await painted(page, "text")).at(-1)).toMatch(/^'v\d{4}'$/);
});

test("entries are made, renamed, given a mode and deleted with keys", async ({ page, api }) => {
  const { id } = await withFiles(api, "true");
  await open(page, id);
  await page.getByRole("button", { name: "New folder" }).focus();
  await page.keyboard.press("Enter");
  const name = page.getByLabel("Name", { exact: true });
  await expect(name).toBeFocused();
  await page.keyboard.type("a/b");
  await expect(page.locator("#new-name-why")).toContainText("must not contain a slash");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("data");
  await page.keyboard.press("Enter");
  await expect(entry(page, "data")).toBeVisible();
  await page.getByRole("button", { name: "New file" }).click();
  await page.keyboard.type("data");
  await page.keyboard.press("Enter");
  await expect(page.getByText("There is something at /root/data already.")).toBeVisible();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("note.txt");
  await page.keyboard.press("Enter");
  await expect(entry(page, "note.txt")).toBeVisible();
  await entry(page, "note.txt").getByRole("button", { name: /^Rename/ }).click();
  await page.getByLabel("Name or path").fill("renamed.txt");
  await page.getByLabel("Mode (octal)").fill("600");
  await page.keyboard.press("Enter");
  await expect(entry(page, "renamed.txt")).toContainText("rw-------");
  await entry(page, "renamed.txt").getByRole("button", { name: "Delete renamed.txt" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click();
  await expect(entry(page, "renamed.txt")).toHaveCount(0);
  await expect(entry(page, "data")).toBeVisible();
});

test("a folder is uploaded, and downloaded as a tar archive", async ({ page, api }) => {
  const { id } = await withFiles(api, "true");
  const local = mkdtempSync(join(tmpdir(), "osb-upload-"));
  mkdirSync(join(local, "project/src"), { recursive: true });
  writeFileSync(join(local, "project/src/main.py"), "print('hello')\n");
  writeFileSync(join(local, "project/big.bin"), Buffer.alloc(3_000_000, 7));
  await open(page, id);
  await page.getByLabel("Folder to upload").setInputFiles(join(local, "project"));
  await expect(page.getByText("Uploaded 2 files to /root")).toBeVisible();
  await page.getByLabel("Files to upload").setInputFiles({
    name: "ünï code.txt",
    mimeType: "text/plain",
    buffer: Buffer.from("x"),
  });
  await expect(entry(page, "ünï code.txt")).toBeVisible();
  await page.getByRole("link", { name: "project", exact: true }).click();
  await expect(entry(page, "big.bin")).toContainText("2.9 MiB");
  const download = page.waitForEvent("download");
  await page.getByRole("link", { name: "Download as tar" }).click();
  const file = await download;
  expect(file.suggestedFilename()).toBe("project.tar");
  const archive = await file.path();
  const names = execFileSync("tar", ["-tf", archive], { encoding: "utf8" }).trim().split("\n").sort();
  expect(names).toEqual(["project/big.bin", "project/src/", "project/src/main.py"]);
  execFileSync("tar", ["-xf", archive, "-C", local, "--transform", "s/^project/back/"]);
  execFileSync("cmp", [join(local, "project/big.bin"), join(local, "back/big.bin")]);
});

/** Drops files and folders of this machine on an element. */
async function drop(page: Page, selector: string, files: string[]): Promise<void> {
  const box = (await page.locator(selector).boundingBox())!;
  const cdp = await page.context().newCDPSession(page);
  const at = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  const data = { items: [], files, dragOperationsMask: 1 };
  for (const type of ["dragEnter", "dragOver", "drop"] as const) {
    await cdp.send("Input.dispatchDragEvent", { type, ...at, data });
  }
  await cdp.detach();
}

test("a folder is dropped with all that is in it, and files that exist are replaced only on request", async ({
  page,
  api,
}) => {
  const { id } = await withFiles(api, "mkdir -p project/src; echo theirs > project/src/main.py; echo theirs > b.txt");
  const local = mkdtempSync(join(tmpdir(), "osb-drop-"));
  mkdirSync(join(local, "project/src/deep"), { recursive: true });
  mkdirSync(join(local, "project/empty"));
  writeFileSync(join(local, "project/src/main.py"), "mine\n");
  writeFileSync(join(local, "project/src/deep/new.py"), "new\n");
  // Browsers return the entries of a folder a hundred at a time.
  for (let n = 0; n < 120; n++) writeFileSync(join(local, `project/f${n}.txt`), `${n}\n`);
  writeFileSync(join(local, "b.txt"), "mine\n");
  await open(page, id);
  await drop(page, ".uploads", [join(local, "project"), join(local, "b.txt")]);
  const question = page.getByRole("alertdialog", { name: "2 files exist already" });
  await expect(question.getByRole("listitem")).toHaveText(["b.txt", "project/src/main.py"]);
  await expect(question.getByRole("button", { name: "Skip them" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByText("Uploaded 121 files to /root")).toBeVisible();
  const read = (path: string) => api.run(id, `cat /root/${path}`);
  expect(await read("project/src/deep/new.py")).toContain("new");
  expect(await read("project/f119.txt")).toContain("119");
  expect(await read("project/src/main.py")).toContain("theirs");
  // Escape uploads nothing.
  await page.getByLabel("Files to upload").setInputFiles(join(local, "b.txt"));
  const one = page.getByRole("alertdialog", { name: "A file exists already" });
  await expect(one).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(one).toBeHidden();
  expect(await read("b.txt")).toContain("theirs");
  await page.getByLabel("Files to upload").setInputFiles(join(local, "b.txt"));
  await one.getByRole("button", { name: "Replace them" }).click();
  await expect(page.getByText("Uploaded 1 file to /root")).toBeVisible();
  expect(await read("b.txt")).toContain("mine");
});

test("an upload that was cancelled does not go on beside the next one", async ({ page, api }) => {
  const { id } = await withFiles(api, "true");
  const local = mkdtempSync(join(tmpdir(), "osb-cancel-"));
  for (const name of ["first.txt", "second.txt"]) writeFileSync(join(local, name), "mine\n");
  await open(page, id);
  // What the server is asked about existing files: the first answer comes during the second upload.
  const asked: Route[] = [];
  await page.route("**/console/fn/files/taken", (route) => void asked.push(route));
  const input = page.getByLabel("Files to upload");
  await input.setInputFiles(join(local, "first.txt"));
  await expect.poll(() => asked.length).toBe(1);
  await page.locator(".upload-state").getByRole("button", { name: "Cancel" }).click();
  await expect(page.locator(".upload-state")).toHaveCount(0);
  await input.setInputFiles(join(local, "second.txt"));
  await expect.poll(() => asked.length).toBe(2);
  const answered = page.waitForResponse("**/console/fn/files/taken");
  await asked[0].continue();
  await answered;
  await asked[1].continue();
  await expect(page.getByText("Uploaded 1 file to /root")).toBeVisible();
  const files = await api.run(id, "ls /root");
  expect(files).toContain("second.txt");
  expect(files).not.toContain("first.txt");
});

test("a text keeps its lines and their numbers when the server renders it", async ({ page, api }) => {
  const { id } = await withFiles(
    api,
    "printf '\\n\\nthree\\n' > empty-first.py; printf 'a\\r\\nb\\rc\\nd' > ends.txt; seq 1 90 > numbers.txt",
  );
  const text = page.locator(".file-text > pre").last();
  const shown = async (expected: string, numbers: string) => {
    await expect.poll(() => text.evaluate((it) => it.textContent)).toBe(expected);
    await expect.poll(() => page.locator(".gutter").evaluate((it) => it.textContent)).toBe(numbers);
    const heights = await page.locator(".file-text > pre").evaluateAll((all) => all.map((it) => it.clientHeight));
    expect(heights[0]).toBe(heights[1]);
  };
  await open(page, id, "/root/empty-first.py");
  await shown("\n\nthree\n", "1\n2\n3");
  await page.goto(`/console/sandboxes/${id}/files?path=/root/ends.txt`);
  await shown("a\nb␍c\nd", "1\n2\n3");
  // The same without a load of the page.
  await hydrated(page);
  await page.getByRole("navigation", { name: "Folders" }).getByRole("link", { name: "root", exact: true }).click();
  await page.getByRole("link", { name: "empty-first.py", exact: true }).click();
  await shown("\n\nthree\n", "1\n2\n3");
  // A marked line is in sight.
  await page.goto(`/console/sandboxes/${id}/files?path=/root/numbers.txt&line=80`);
  await hydrated(page);
  await expect(page.locator(".gutter .at")).toHaveText("80");
  await expect(page.locator(".gutter .at")).toBeInViewport();
  await expect(page.getByRole("region", { name: "numbers.txt, line 80 is marked" })).toBeVisible();
});

test("files are found by name and by content, and text is replaced in those that are chosen", async ({ page, api }) => {
  const hostile = "<img src=x onerror=alert(1)>";
  const { id } = await withFiles(
    api,
    [
      "mkdir -p src/deep",
      "printf 'one\\ntwo\\nneedle here, needle there\\n' > src/a.txt",
      `printf 'x NEEDLE ${hostile}\\n' > 'src/deep/${hostile}.txt'`,
      "printf 'needle\\0' > src/binary.bin",
      "(seq 1 60000; echo needle) > src/long.log",
      "echo 'needle needle' > src/b.py",
    ].join("; "),
  );
  await open(page, id);
  const form = page.getByRole("search", { name: "Find in this folder" });
  await form.getByLabel("Find names").focus();
  await page.keyboard.type("*.py");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/name=%2A\.py/);
  const found = page.getByRole("region", { name: "What was found" });
  await expect(found.locator(".found-name a")).toHaveText(["src/b.py"]);
  await form.getByLabel("Find names").fill("");
  await form.getByLabel("with the text").fill("needle");
  await page.keyboard.press("Enter");
  await expect(found.getByRole("status")).toContainText("6 places in 4 files");
  await expect(found.locator(".found-name a")).toHaveText([
    "src/a.txt",
    "src/b.py",
    `src/deep/${hostile}.txt`,
    "src/long.log",
  ]);
  await expect(found.locator(".found-line .line").nth(2)).toHaveText(`x NEEDLE ${hostile}`);
  expect(await found.locator("img").count()).toBe(0);
  // The line is shown, also in a part of a large file.
  await found.locator(".found-line").first().click();
  await expect(page.locator(".gutter .at")).toHaveText("3");
  await page.goBack();
  await found.locator(".found-line").last().click();
  await expect(page.locator(".gutter .at")).toHaveText("60001");
  await expect(page.locator(".file-text > pre").last()).toHaveText("needle");
  await page.goBack();
  // Replacing needs the exact text.
  await expect(found.getByRole("button", { name: /^Replace in/ })).toHaveCount(0);
  await form.getByLabel("Match case").check();
  await form.getByRole("button", { name: "Find" }).click();
  await expect(found.getByRole("status")).toContainText("5 places in 3 files");
  await found.getByRole("checkbox", { name: "Replace in src/long.log" }).uncheck();
  await found.getByLabel("Replace with").fill("thread");
  await found.getByRole("button", { name: "Replace in 2 files" }).click();
  const question = page.getByRole("alertdialog", { name: "Replace in 2 files?" });
  await expect(question).toContainText("in 4 places: src/a.txt (2), src/b.py (2)");
  await question.getByRole("button", { name: "Replace" }).click();
  await expect(page.getByText("Replaced 4 places in 2 files")).toBeVisible();
  await expect(found.locator(".found-name a")).toHaveText(["src/long.log"]);
  expect(await api.run(id, "cat /root/src/a.txt")).toContain("thread here, thread there");
  await form.getByLabel("with the text").fill("");
  await form.getByLabel("Find names").fill("[");
  await page.keyboard.press("Enter");
  await expect(page.locator("main")).toContainText("bad pattern");
  await expect(form.getByLabel("Find names")).toHaveValue("[");
  // The fields follow the address.
  await page.goBack();
  await expect(form.getByLabel("Find names")).toHaveValue("");
  await expect(form.getByLabel("with the text")).toHaveValue("needle");
  await expect(form.getByLabel("Match case")).toBeChecked();
});

test("values that are separated by commas are shown as a table, or as text", async ({ page, api }) => {
  const { id } = await withFiles(
    api,
    `printf 'name,"size, in MB"\\n"<b>a</b>",1\\nb\\n' > list.csv; (echo a; seq 1 900) > long.tsv`,
  );
  await open(page, id, "/root/list.csv");
  const table = page.getByRole("region", { name: "list.csv" }).getByRole("table");
  await expect(table.locator("thead th")).toHaveText(["Row", "name", "size, in MB"]);
  await expect(table.locator("tbody td")).toHaveText(["<b>a</b>", "1", "b", ""]);
  await page.getByRole("link", { name: "As text" }).focus();
  await page.keyboard.press("Enter");
  await expect(page.locator(".file-text > pre").last()).toContainText('name,"size, in MB"');
  await page.getByRole("link", { name: "As table" }).click();
  await expect(table.locator("tbody tr")).toHaveCount(2);
  await page.goto(`/console/sandboxes/${id}/files?path=/root/long.tsv`);
  await expect(page.getByText("These are the first 500 rows.")).toBeVisible();
});

test("the tree has one tab stop, and arrows walk it", async ({ page, api }) => {
  const { id } = await withFiles(api, "mkdir -p walk/a/deep walk/b");
  await open(page, id, "/root/walk");
  const tree = page.getByRole("tree", { name: "Folder tree" });
  const item = (name: string) => tree.getByRole("treeitem", { name, exact: true });
  const stops = tree.locator("[tabindex='0']");
  await expect(item("walk")).toHaveAttribute("aria-current", "page");
  await expect(stops).toHaveText(["walk"]);
  await expect(tree.getByRole("treeitem").first()).toHaveAttribute("aria-level", "1");
  await expect(item("root")).toHaveAttribute("aria-level", "2");
  await expect(item("walk")).toHaveAttribute("aria-level", "3");
  await stops.focus();
  await page.keyboard.press("ArrowRight");
  await expect(item("walk")).toHaveAttribute("aria-expanded", "true");
  await expect(item("a")).toHaveAttribute("aria-level", "4");
  await page.keyboard.press("ArrowRight");
  await expect(item("a")).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(item("b")).toBeFocused();
  await expect(stops).toHaveText(["b"]);
  await page.keyboard.press("ArrowUp");
  await expect(item("a")).toBeFocused();
  await page.keyboard.press("ArrowLeft");
  await expect(item("walk")).toBeFocused();
  // A folder that is no longer shown leaves the stop to the root.
  await item("root").locator(".tree-toggle").click();
  await expect(item("walk")).toHaveCount(0);
  await expect(stops).toHaveCount(1);
  await expect(tree.getByRole("treeitem").first()).toHaveAttribute("tabindex", "0");
});

test("an entry is moved to another folder, and nothing is overwritten", async ({ page, api }) => {
  const { id } = await withFiles(api, "mkdir data; echo 1 > a.txt; echo 2 > data/b.txt");
  await open(page, id);
  const edit = async (name: string, to: string) => {
    await entry(page, name).getByRole("button", { name: /^Rename or move/ }).click();
    await page.getByLabel("Name or path").fill(to);
    await page.keyboard.press("Enter");
  };
  await edit("a.txt", "data/b.txt");
  await expect(page.getByText("There is something at /root/data/b.txt already.")).toBeVisible();
  await page.getByLabel("Name or path").fill("/");
  await page.keyboard.press("Enter");
  await expect(page.getByText("There is something at /a.txt already.")).toHaveCount(0);
  await expect(page.getByText("Moved a.txt to /a.txt")).toBeVisible();
  await expect(entry(page, "a.txt")).toHaveCount(0);
  await edit("data", "/tmp/new/data");
  await expect(page.getByText("Moved data to /tmp/new/data")).toBeVisible();
  expect(await api.run(id, "cat /a.txt /tmp/new/data/b.txt")).toContain("2");
});

test("a file is edited, a folder uploaded and downloaded as tar with keys alone", async ({ page, api }) => {
  const { id } = await withFiles(api, "echo old > note.txt");
  const local = mkdtempSync(join(tmpdir(), "osb-keys-"));
  mkdirSync(join(local, "kit/src"), { recursive: true });
  writeFileSync(join(local, "kit/src/main.py"), "print(1)\n");
  await open(page, id);
  /** Moves the focus with Tab until something with this name has it. */
  const tabTo = async (name: string | RegExp) => {
    const wanted = (text: string) => (typeof name === "string" ? text === name : name.test(text));
    for (let presses = 0; presses < 80; presses++) {
      await page.keyboard.press("Tab");
      const text = await page.evaluate(() => {
        const it = document.activeElement as HTMLElement;
        return it.getAttribute("aria-label") ?? it.textContent?.trim() ?? "";
      });
      if (wanted(text)) return;
    }
    throw new Error(`nothing named ${name} takes the focus`);
  };
  await tabTo("note.txt");
  await page.keyboard.press("Enter");
  await expect(page.locator(".file-text")).toContainText("old");
  await tabTo("Edit");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("textbox", { name: "Text of note.txt" })).toBeFocused();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("new\n");
  await page.keyboard.press("Control+s");
  await expect(page.getByRole("region", { name: "What changes" })).toContainText("1 added, 1 removed");
  await tabTo("Save");
  await page.keyboard.press("Enter");
  await expect(page.locator(".file-text")).toContainText("new");
  await tabTo("root");
  await page.keyboard.press("Enter");
  await expect(entry(page, "note.txt")).toBeVisible();
  await tabTo("Upload a folder");
  const chooser = page.waitForEvent("filechooser");
  await page.keyboard.press("Enter");
  await (await chooser).setFiles(join(local, "kit"));
  await expect(page.getByText("Uploaded 1 file to /root")).toBeVisible();
  await tabTo("kit");
  await page.keyboard.press("Enter");
  await expect(entry(page, "src")).toBeVisible();
  await tabTo("Download as tar");
  const download = page.waitForEvent("download");
  await page.keyboard.press("Enter");
  const archive = await (await download).path();
  const names = execFileSync("tar", ["-tf", archive], { encoding: "utf8" }).trim().split("\n").sort();
  expect(names).toEqual(["kit/src/", "kit/src/main.py"]);
});

test("large files are read in parts, other bytes are shown as such, and images as images", async ({ page, api }) => {
  const png =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const { id } = await withFiles(
    api,
    `truncate -s 3G huge.bin; seq 1 200000 > long.txt; echo ${png} | base64 -d > dot.png; ` +
      `echo '<script>alert(1)</script>' > page.html; echo '<svg xmlns="http://www.w3.org/2000/svg"/>' > drawing.svg`,
  );
  let dialogs = 0;
  page.on("dialog", () => dialogs++);
  await open(page, id, "/root/huge.bin");
  await expect(page.locator(".file-facts")).toContainText("3.0 GiB");
  await expect(page.locator(".file-text")).toContainText("00000000  00 00");
  await page.getByRole("link", { name: "Last" }).click();
  await expect(page.locator(".file-text")).toContainText("bffff000  00 00");
  await page.goto(`/console/sandboxes/${id}/files?path=/root/long.txt`);
  await page.getByRole("link", { name: "Last" }).click();
  await expect(page.locator(".file-text")).toContainText("200000");
  await expect(page.getByRole("button", { name: "Edit" })).toHaveCount(0);
  await page.goto(`/console/sandboxes/${id}/files?path=/root/dot.png`);
  const image = page.getByRole("img", { name: "dot.png" });
  await expect.poll(() => image.evaluate((image: HTMLImageElement) => image.naturalWidth)).toBe(1);
  for (const name of ["page.html", "drawing.svg"]) {
    await page.goto(`/console/sandboxes/${id}/files?path=/root/${name}`);
    await expect(page.locator(".file-text")).toContainText("<");
    const answer = await page.request.get(`/console/sandboxes/${id}/files/image?path=/root/${name}`);
    expect(answer.status()).toBe(422);
    const download = await page.request.get(`/console/sandboxes/${id}/files/download?path=/root/${name}`);
    expect(download.headers()["content-disposition"]).toContain("attachment");
    expect(download.headers()["x-content-type-options"]).toBe("nosniff");
  }
  expect(dialogs).toBe(0);
});

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("folders and files are readable", async ({ page, api }) => {
    const { id } = await withFiles(api, "for n in {1..700}; do echo $n > f$n; done");
    await expect(async () => {
      await logIn(page, `/console/sandboxes/${id}/files?path=/root`);
      await expect(page.getByText(/1 to 500 of 70\d/)).toBeVisible({ timeout: 500 });
    }).toPass();
    await page.getByRole("link", { name: "Next" }).click();
    await expect(page.getByText(/501 to 70\d of 70\d/)).toBeVisible();
    await page.getByRole("link", { name: "f98", exact: true }).click();
    await expect(page.locator(".file-text > pre").last()).toHaveText("98\n");
  });
});
