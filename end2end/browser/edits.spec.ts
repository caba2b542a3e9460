// Edits of files: what is shown of large ones, files that are deleted meanwhile, and names that are not
// UTF-8.

import { expect, hydrated, test } from "./console";
import { entry, open, withFiles } from "./files";

test("a file that was deleted while it was edited is written again, with keys alone", async ({ page, api }) => {
  const { id } = await withFiles(api, "echo old > run.sh; chmod 755 run.sh");
  await open(page, id, "/root/run.sh");
  await page.getByRole("button", { name: "Edit" }).press("Enter");
  const area = page.getByRole("textbox", { name: "Text of run.sh" });
  await expect(area).toBeFocused();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("mine\n");
  await api.run(id, "rm /root/run.sh");
  await page.keyboard.press("Control+s");
  const save = page.getByRole("button", { name: "Save", exact: true });
  await save.press("Enter");
  const question = page.getByRole("alertdialog", { name: "The file was deleted. Write it again?" });
  await expect(question).toContainText("/root/run.sh was deleted after you opened it");
  // The text is still there after a no.
  await expect(question.getByRole("button", { name: "Cancel" })).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(question).toBeHidden();
  await expect(save).toBeFocused();
  expect(await api.run(id, "ls /root")).not.toContain("run.sh");
  await page.keyboard.press("Enter");
  await expect(question.getByRole("button", { name: "Cancel" })).toBeFocused();
  await page.keyboard.press("Tab");
  await expect(question.getByRole("button", { name: "Write it again" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.locator(".file-text > pre").last()).toHaveText("mine\n");
  await expect(page.locator(".file-facts")).toContainText("rwxr-xr-x");
  await expect(page.getByRole("button", { name: "Edit" })).toBeFocused();
});

test("what was typed into a deleted file is offered after a reload", async ({ page, api }) => {
  const { id } = await withFiles(api, "echo old > note.txt");
  await open(page, id, "/root/note.txt");
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Text of note.txt" }).fill("mine\n");
  await api.run(id, "rm /root/note.txt");
  await page.reload();
  await hydrated(page);
  await expect(page.locator("main")).toContainText("There is nothing at /root/note.txt.");
  const offer = page.getByRole("status").filter({ hasText: "What you typed into this file was not saved." });
  await offer.getByRole("button", { name: "Write it again" }).press("Enter");
  await expect(page.locator(".file-text > pre").last()).toHaveText("mine\n");
  await expect(offer).toHaveCount(0);
});

test("a change of thirty thousand lines is shown in part, and saved as a whole", async ({ page, api }) => {
  const { id } = await withFiles(api, "seq 1 30000 > long.txt");
  await open(page, id, "/root/long.txt");
  await page.getByRole("button", { name: "Edit" }).click();
  const area = page.getByRole("textbox", { name: "Text of long.txt" });
  // Typing so much takes the browser minutes.
  await area.evaluate((it: HTMLTextAreaElement) => {
    it.value = Array.from({ length: 30_000 }, (_, number) => `x${number}\n`).join("");
    it.dispatchEvent(new InputEvent("input", { bubbles: true }));
  });
  await area.press("Control+s");
  const difference = page.getByRole("region", { name: "What changes" });
  await expect(difference).toContainText("30000 added, 30000 removed");
  await expect(difference).toContainText("59000 changed lines are not shown; saving changes them, too");
  await expect(difference.locator("[data-kind=gap]")).toHaveText([
    /29500 removed lines are not shown/,
    /29500 added lines are not shown/,
  ]);
  await expect(difference.locator("[data-kind=removed]")).toHaveCount(500);
  await expect(difference.locator("[data-kind=added]")).toHaveCount(500);
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await expect(page.locator(".file-text")).toContainText("x29999");
  expect(await api.run(id, "wc -l /root/long.txt")).toContain("30000 /root/long.txt");
});

test("names that are not UTF-8 are shown without links, and with the reason", async ({ page, api }) => {
  const { id } = await withFiles(api, "echo 1 > $'caf\\xe9.txt'; mkdir $'d\\xff'; echo 2 > plain.txt");
  await open(page, id);
  await expect(entry(page, "plain.txt")).toBeVisible();
  const odd = page.locator(".file-list tbody tr").filter({ hasText: "(not UTF-8)" });
  await expect(odd).toHaveCount(2);
  await expect(odd.last()).toContainText("caf\ufffd.txt");
  await expect(odd.getByRole("link")).toHaveCount(0);
  await expect(odd.getByRole("button")).toHaveCount(0);
  await expect(page.locator("main")).toContainText("Names with \ufffd are not UTF-8.");
  const form = page.getByRole("search", { name: "Find in this folder" });
  await form.getByLabel("Find names").fill("caf");
  await page.keyboard.press("Enter");
  const found = page.getByRole("region", { name: "What was found" });
  await expect(found.locator(".found-entry")).toContainText("(not UTF-8: use a terminal)");
  await expect(found.getByRole("link")).toHaveCount(0);
  await page.goto(`/console/sandboxes/${id}/files?path=/root/caf%EF%BF%BD.txt`);
  await expect(page.locator("main")).toContainText("If its name is not UTF-8, the console cannot open it");
});
