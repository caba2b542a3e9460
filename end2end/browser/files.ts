// What tests of the files tab share.

import type { Page } from "@playwright/test";
import { type Api, expect, hydrated, logIn } from "./console";

/** The row of an entry of the folder. */
export const entry = (page: Page, name: string) =>
  page.locator(".file-list tbody tr").filter({ has: page.getByRole("link", { name, exact: true }) });

/** A sandbox whose files these commands made. */
export async function withFiles(api: Api, script: string) {
  const sandbox = await api.create(["bash", "-c", `cd /root; ${script}; touch /root/ready; exec tail -f /dev/null`]);
  await expect.poll(() => api.run(sandbox.id, "ls /root")).toContain("ready");
  return sandbox;
}

export async function open(page: Page, id: string, path = "/root"): Promise<void> {
  await logIn(page, `/console/sandboxes/${id}/files?path=${encodeURIComponent(path)}`);
  await hydrated(page);
}
