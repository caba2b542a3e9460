// Texts that become code where a page takes them for markup, and how a test notices.

import type { BrowserContext, Page, TestType } from "@playwright/test";
import { expect } from "./console";

/** Breaks out of text, attributes, scripts, styles and URLs. */
export const HOSTILE = [
  `<img src=x onerror=pwned()>`,
  `"><svg onload=pwned()>`,
  `'-pwned()-'`,
  `</script><script>pwned()</script>`,
  `{{pwned()}}\${pwned()}`,
].join(" ");
export const LINK = "javascript:pwned()";

/**
 * Tests that fail once a script of such a text runs. The pages' policy would stop most of them, and
 * what the policy stops is a fault of the page, which fails a test as well.
 */
export function withoutScripts<T extends object, W extends object>(base: TestType<T, W>) {
  return base.extend<{ ran: string[] }>({
    ran: [
      async ({ context }: { context: BrowserContext }, use: (ran: string[]) => Promise<void>) => {
        const ran: string[] = [];
        await context.exposeBinding("pwned", ({ page }) => ran.push(page.url()));
        context.on("dialog", (dialog) => {
          ran.push(dialog.message());
          void dialog.dismiss();
        });
        await use(ran);
        expect(ran).toEqual([]);
      },
      { auto: true },
    ],
  } as never) as TestType<T, W>;
}

/** What the page made of the texts: elements and addresses that run code. */
export async function made(page: Page): Promise<string[]> {
  return await page.evaluate(() => {
    const found: string[] = [];
    for (const it of document.querySelectorAll("*")) {
      for (const { name, value } of it.attributes) {
        const isCode = name.startsWith("on") || (/^(href|src|action|formaction|srcdoc)$/.test(name) && /^\s*javascript:/i.test(value));
        if (isCode) found.push(`${it.tagName} ${name}=${value}`);
      }
      if (it.tagName === "IMG" && it.getAttribute("src") === "x") found.push("IMG");
      if (it.tagName === "SCRIPT" && it.textContent!.startsWith("pwned()")) found.push("SCRIPT");
    }
    return found;
  });
}
