// The files tab: folders, files, editing, uploads and downloads.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "@playwright/test";
import { expect, hydrated, logIn, test } from "./console";

const entry = (page: Page, name: string) =>
  page.locator(".file-list tbody tr").filter({ has: page.getByRole("link", { name, exact: true }) });

/** A sandbox whose files these commands made. */
async function withFiles(api: { create(entrypoint: string[]): Promise<{ id: string }> }, script: string) {
  return api.create(["bash", "-c", `cd /root; ${script}; touch /root/ready; exec tail -f /dev/null`]);
}

async function open(page: Page, id: string, path = "/root"): Promise<void> {
  await logIn(page, `/console/sandboxes/${id}/files?path=${encodeURIComponent(path)}`);
  await hydrated(page);
}

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
  await expect(name.first()).toBeFocused();
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
  await page.getByLabel("Name", { exact: true }).last().fill("renamed.txt");
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
