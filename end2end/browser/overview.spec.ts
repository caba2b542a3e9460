// The overview: numbers that lead to their lists, what failed and why, and a test of the installation.

import { expect, hydrated, logIn, test } from "./console";

test("numbers follow the sandboxes and lead to their lists", async ({ page, api }) => {
  await logIn(page, "/console");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Overview");
  await hydrated(page);
  await page.evaluate(() => Object.assign(window, { mark: "not reloaded" }));
  const running = page.getByRole("link", { name: /Running/ });
  const number = async () => Number(await running.locator(".counter-number").textContent());
  const before = await number();
  await api.create();
  await expect.poll(number).toBeGreaterThan(before);
  expect(await page.evaluate(() => (window as unknown as { mark: string }).mark)).toBe("not reloaded");
  await running.focus();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\?state=Running$/);
  await expect(page.locator("[data-row-link]").first()).toBeVisible();
});

test("a failed create is named with its reason, without a reload", async ({ page, api }) => {
  await logIn(page, "/console");
  await hydrated(page);
  const failures = page.getByRole("region", { name: "Recent failures" });
  await expect
    .poll(async () => {
      const answer = await fetch(`${api.url}/v1/sandboxes`, {
        method: "POST",
        headers: { "OPEN-SANDBOX-API-KEY": process.env.OSB_API_KEY ?? "", "Content-Type": "application/json" },
        body: JSON.stringify({
          image: { uri: "no-such-registry.invalid/no/such:image" },
          entrypoint: ["x"],
          timeout: 60,
          resourceLimits: {},
          metadata: { name: "doomed" },
        }),
      });
      return answer.ok;
    })
    .toBe(false);
  await expect(failures).toContainText("no-such-registry.invalid/no/such:image cannot be pulled");
  await failures.getByRole("link", { name: "doomed" }).first().click();
  await expect(page.locator("#main")).toContainText("cannot be pulled");
});

test("every number of activity and failures is that of the list it leads to", async ({ page, api }) => {
  const failed = await api.create(["sh", "-c", "exit 3"], { name: "failed-and-kept" });
  const gone = await api.create();
  await api.remove(gone.id);
  await expect.poll(async () => (await api.call("GET", `/sandboxes/${gone.id}`)).status).toBe(404);
  await logIn(page, `/console/sandboxes?q=id:${failed.id}`);
  await expect(page.getByRole("row").filter({ hasText: "failed-and-kept" })).toContainText("Failed");
  await page.goto("/console");
  await hydrated(page);
  const links = page.locator(".activity-facts a, .failure-count a");
  await expect(page.locator(".activity-facts")).toContainText(/created.*present.*ended/);
  const lists = await links.evaluateAll((all) =>
    all.map((link) => [link.getAttribute("href")!, Number.parseInt(link.textContent!, 10)] as const),
  );
  expect(lists.length).toBeGreaterThan(3);
  for (const [address, number] of lists) {
    await page.goto(address);
    const total = page.locator(".pager p").first();
    await expect(total, address).toHaveText(new RegExp(`^${number} (of|in total)`));
  }
});

test("a test sandbox measures each stage and is deleted, by keyboard", async ({ page, api }) => {
  await logIn(page, "/console");
  await hydrated(page);
  const card = page.getByRole("region", { name: "Test sandbox" });
  await card.getByRole("button", { name: "Run a test sandbox" }).focus();
  await page.keyboard.press("Enter");
  await expect(card.getByRole("status")).toContainText(/Ready after .* Deleted after/);
  const stages = card.getByRole("list", { name: "Stages" }).getByRole("listitem");
  await expect(stages).toHaveCount(6);
  for (const stage of await stages.all()) await expect(stage).toHaveAttribute("data-state", "done");
  const page_ = await card.getByRole("link").first().getAttribute("href");
  const gone = await api.call("GET", `/sandboxes/${page_!.split("/").pop()}`);
  expect(gone.status).toBe(404);
  await expect(card.getByRole("button")).not.toHaveAttribute("aria-disabled", "true");
});

for (const width of [360, 768, 1440]) {
  test(`the overview fits into ${width} px`, async ({ page }) => {
    await page.setViewportSize({ width, height: 900 });
    await logIn(page, "/console");
    await hydrated(page);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide).toBeLessThanOrEqual(width);
  });
}

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("the overview reads, and a test sandbox leads to its page", async ({ page, api }) => {
    await logIn(page, "/console");
    await expect(page.locator(".readiness")).toContainText("Ready");
    await expect(page.getByRole("link", { name: /Expire in 15 min/ })).toBeVisible();
    await page.getByRole("button", { name: "Run a test sandbox" }).click();
    await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
    await expect(page.getByRole("list", { name: "Stages" })).toContainText("ready");
    await api.remove(page.url().split("/").pop()!);
  });
});
