// The network tab: the policy, what was decided by it, and the policy that follows. Names end in
// .example, which no resolver knows: what counts is what the sidecar decides about them.

import type { Page } from "@playwright/test";
import { expect, hydrated, image, key, logIn, test, type Api } from "./console";

type Rule = { action: string; target: string };
type Policy = { defaultAction?: string; egress?: Rule[] };

const UNKNOWN = "00000000-0000-4000-8000-000000000000";
const allow = (target: string): Rule => ({ action: "allow", target });
const decisions = (page: Page) => page.getByRole("region", { name: "Decisions" });
const rules = (page: Page) => page.getByRole("region", { name: "Policy", exact: true });
const ruleRows = (page: Page) => rules(page).locator(".rule-list tbody tr .n-target");
const decision = (page: Page, name: string) =>
  decisions(page).getByRole("row").filter({ has: page.getByRole("rowheader", { name, exact: true }) });

async function limited(api: Api, policy: Policy): Promise<string> {
  return (await api.create(undefined, {}, policy)).id;
}

async function policyOf(api: Api, id: string): Promise<Policy> {
  const answer = await api.call("GET", `/sandboxes/${id}/networkpolicy`);
  return ((await answer.json()) as { policy: Policy }).policy;
}

/** Asks for names in a sandbox; whether they are known does not matter. */
async function ask(api: Api, id: string, ...names: string[]): Promise<void> {
  await api.run(id, `${names.map((name) => `getent hosts ${name} &`).join(" ")} wait`);
}

test.beforeEach(async ({ api }) => {
  // Name servers of this machine may be slow to answer, or unavailable.
  test.setTimeout(180_000);
  let isAvailable = true;
  try {
    await api.call("GET", `/sandboxes/${UNKNOWN}/networkpolicy`);
  } catch (error) {
    if (!`${error}`.includes("501")) throw error;
    isAvailable = false;
  }
  test.skip(!isAvailable, "the server has no network policies: it needs [egress] image");
});

test("a refused name appears by itself, is allowed with one key, and that is taken back", async ({ page, api }) => {
  const id = await limited(api, { defaultAction: "deny", egress: [allow("a.example")] });
  await logIn(page, `/console/sandboxes/${id}`);
  await hydrated(page);
  const tabs = page.getByRole("navigation", { name: "Parts of this sandbox" });
  await tabs.getByRole("link", { name: "Network" }).press("Enter");
  await expect(rules(page)).toContainText("Everything is refused, unless a rule allows it.");
  await expect(ruleRows(page)).toHaveText(["a.example"]);
  await expect(decision(page, "wanted.example")).toHaveCount(0);
  await ask(api, id, "wanted.example");
  const row = decision(page, "wanted.example");
  await expect(row).toContainText("Refused");
  await expect(row).toContainText("default");

  await row.getByRole("button", { name: "Allow wanted.example" }).press("Enter");
  const done = decisions(page).locator(".last-change");
  await expect(done).toContainText("wanted.example is allowed");
  await expect(ruleRows(page)).toHaveText(["wanted.example", "a.example"]);
  await expect(row).toContainText("Allowed by now");
  expect(await policyOf(api, id)).toEqual({
    defaultAction: "deny",
    egress: [allow("wanted.example"), allow("a.example")],
  });
  await ask(api, id, "wanted.example");
  await expect(row.locator(".verdict")).toHaveText("Allowed");
  await expect(row).toContainText("allow wanted.example");

  await done.getByRole("button", { name: "Undo" }).press("Enter");
  await expect(ruleRows(page)).toHaveText(["a.example"]);
  await expect(done).toHaveText("");
  expect((await policyOf(api, id)).egress).toEqual([allow("a.example")]);
  await ask(api, id, "wanted.example");
  await expect(row.locator(".verdict")).toHaveText("Refused");
});

test("decisions are filtered by the address and by what is typed", async ({ page, api }) => {
  const id = await limited(api, { defaultAction: "allow", egress: [{ action: "deny", target: "*.ads.example" }] });
  await ask(api, id, "one.ads.example", "two.ads.example", "plain.example");
  await logIn(page, `/console/sandboxes/${id}/network?show=denied`);
  await hydrated(page);
  await expect(decision(page, "one.ads.example")).toContainText("deny *.ads.example");
  await expect(decision(page, "plain.example")).toHaveCount(0);
  await decisions(page).getByRole("link", { name: "Allowed" }).press("Enter");
  await expect(page).toHaveURL(/show=allowed/);
  await expect(decision(page, "plain.example")).toHaveCount(1);
  await expect(decision(page, "one.ads.example")).toHaveCount(0);
  await decisions(page).getByRole("link", { name: "All", exact: true }).press("Enter");
  await decisions(page).getByRole("textbox", { name: "Find a name or an address" }).fill("TWO.");
  await expect(decision(page, "two.ads.example")).toHaveCount(1);
  await expect(decision(page, "plain.example")).toHaveCount(0);
});

test("rules are added, moved and removed with keys, and a bad target is named while it is typed", async ({ page, api }) => {
  const id = await limited(api, { egress: [allow("a.example")] });
  await logIn(page, `/console/sandboxes/${id}/network`);
  await hydrated(page);
  const target = rules(page).getByRole("textbox", { name: "Target of the new rule" });
  await target.fill("b.example:443");
  await expect(rules(page).locator("#rule-problem")).toContainText("has a port");
  await target.press("Enter");
  await expect(target).toBeFocused();
  expect((await policyOf(api, id)).egress).toEqual([allow("a.example")]);
  await target.fill("*.b.example");
  await expect(rules(page).locator("#rule-problem")).toBeEmpty();
  await rules(page).getByLabel("Action of the new rule").selectOption("deny");
  await target.press("Enter");
  await expect(ruleRows(page)).toHaveText(["*.b.example", "a.example"]);
  await expect(target).toHaveValue("");

  const up = rules(page).getByRole("button", { name: "Move the rule for a.example up" });
  await up.press("Enter");
  await expect(ruleRows(page)).toHaveText(["a.example", "*.b.example"]);
  await expect(up).toBeFocused();
  await expect(up).toHaveAttribute("aria-disabled", "true");
  await rules(page).getByRole("textbox", { name: "Test a host" }).fill("x.b.example");
  await expect(rules(page)).toContainText("by the rule “deny *.b.example”");
  await rules(page).getByRole("button", { name: "Remove the rule for *.b.example" }).press("Enter");
  await expect(ruleRows(page)).toHaveText(["a.example"]);
  await expect(rules(page)).toContainText("by the default");
  await rules(page).getByLabel("What no rule covers is").selectOption("allow");
  await rules(page).getByRole("button", { name: "Set" }).press("Enter");
  await expect(rules(page)).toContainText("Everything is allowed, unless a rule refuses it.");
  expect(await policyOf(api, id)).toEqual({ defaultAction: "allow", egress: [allow("a.example")] });
});

test("a policy is learned: proposed from what was asked for, reviewed and applied", async ({ page, api }) => {
  // Refused names, because no name server is asked whether they exist.
  const deny = (target: string): Rule => ({ action: "deny", target });
  const id = await limited(api, { defaultAction: "allow", egress: [deny("*.jobs.example"), deny("no.example")] });
  await ask(api, id, "one.jobs.example", "two.jobs.example", "three.jobs.example", "no.example");
  await logIn(page, `/console/sandboxes/${id}/network`);
  await hydrated(page);
  await page.getByRole("link", { name: "Propose a policy" }).press("Enter");
  const proposal = page.getByRole("group", { name: "Proposed policy" });
  await expect(proposal.getByRole("listitem")).toHaveText([
    /Everything else is refused/,
    /removed: deny \*\.jobs\.example/,
    /removed: deny no\.example/,
  ]);
  const all = proposal.getByRole("link", { name: "Allow what was refused, too" });
  await all.press("Enter");
  await expect(proposal.getByRole("listitem")).toHaveText([
    /Everything else is refused/,
    /added: allow \*\.jobs\.example.*one\.jobs\.example/,
    /added: allow no\.example/,
    /removed: deny \*\.jobs\.example/,
    /removed: deny no\.example/,
  ]);
  // Its address shows it again, and the page works on.
  await page.reload();
  await hydrated(page);
  await proposal.getByRole("link", { name: "Leave out what was refused" }).press("Enter");
  await expect(proposal).not.toContainText("allow no.example");
  await all.press("Enter");
  await expect(proposal).toContainText("allow no.example");
  await proposal.getByRole("button", { name: "Apply" }).press("Enter");
  await expect(proposal).toHaveCount(0);
  await expect(rules(page)).toContainText("Everything is refused, unless a rule allows it.");
  await expect(ruleRows(page)).toHaveText(["*.jobs.example", "no.example"]);
  expect(await policyOf(api, id)).toEqual({
    defaultAction: "deny",
    egress: [allow("*.jobs.example"), allow("no.example")],
  });
  await decisions(page).getByRole("button", { name: "Undo" }).press("Enter");
  await expect(rules(page)).toContainText("Everything is allowed, unless a rule refuses it.");
  expect((await policyOf(api, id)).defaultAction).toBe("allow");
});

test("a sandbox without a policy says so, and how to get one", async ({ page, sandbox }) => {
  await logIn(page, `/console/sandboxes/${sandbox.id}/network`);
  await hydrated(page);
  await expect(page.getByRole("heading", { name: "No network policy" })).toBeVisible();
  await page.getByRole("link", { name: "Create a copy with a policy" }).press("Enter");
  await expect(page).toHaveURL(new RegExp(`from=${sandbox.id}`));
});

test("a paused sandbox says that its policy is read after a resume", async ({ page, api }) => {
  const id = await limited(api, { egress: [allow("a.example")] });
  await logIn(page, `/console/sandboxes/${id}/network`);
  await hydrated(page);
  await expect(ruleRows(page)).toHaveText(["a.example"]);
  await api.call("POST", `/sandboxes/${id}/pause`);
  await expect(page.locator(".not-running")).toContainText("The sandbox is paused.");
  await page.locator(".not-running").getByRole("button", { name: "Resume" }).press("Enter");
  await expect(page.locator(".not-running")).toHaveCount(0);
  await ask(api, id, "later.example");
  await expect(decision(page, "later.example")).toContainText("Refused");
});

test("a viewer sees the policy, and why nothing can be changed", async ({ page, api }) => {
  test.skip(key === "", "roles need keys");
  const id = await limited(api, { egress: [allow("a.example")] });
  await ask(api, id, "wanted.example");
  const added = await api.call("POST", "/api-keys", { name: "viewer-of-networks", role: "read_only" });
  const { secret, apiKey } = (await added.json()) as { secret: string; apiKey: { id: string } };
  try {
    await page.goto(`/console/login?next=/console/sandboxes/${id}/network`);
    await page.getByLabel("API key").fill(secret);
    await page.getByRole("button", { name: "Sign in" }).click();
    await hydrated(page);
    for (const name of ["Remove the rule for a.example", "Allow wanted.example"]) {
      const button = page.getByRole("button", { name });
      await expect(button).toHaveAttribute("aria-disabled", "true");
      await expect(button).toHaveAccessibleDescription(/Your role may look/);
      await button.press("Enter");
    }
    await expect(rules(page).getByRole("button", { name: "Add rule" })).toHaveCount(0);
    expect((await policyOf(api, id)).egress).toEqual([allow("a.example")]);
  } finally {
    await api.call("DELETE", `/api-keys/${apiKey.id}`);
  }
});

test("a new sandbox gets a policy from the form, whose code has it", async ({ page, api }) => {
  await logIn(page, "/console/create?preset=debian");
  await hydrated(page);
  await page.getByLabel("Image").fill(image);
  await page.getByLabel("Label name").last().fill("suite");
  await page.getByLabel("Value of suite").fill("browser");
  await page.locator("summary").filter({ hasText: /^Advanced$/ }).press("Enter");
  await page.getByLabel("Network", { exact: true }).selectOption("only");
  const hosts = page.getByLabel("Hosts", { exact: true });
  await hosts.fill("api.example\nhttps://b.example/");
  await expect(page.locator("#network_rules-problem")).toContainText("Line 2: ");
  await hosts.fill("api.example\n*.b.example");
  await expect(page.locator("#network_rules-problem")).toBeEmpty();
  const code = page.getByRole("complementary", { name: "Equivalent code" });
  await expect(code).toContainText("networkPolicy");
  await page.getByRole("button", { name: "Create", exact: true }).press("Enter");
  await expect(page).toHaveURL(/\/console\/sandboxes\/[0-9a-f-]{36}$/);
  const id = page.url().split("/").pop()!;
  // There is none to read until it runs.
  const policy = (): Promise<Policy | undefined> => policyOf(api, id).catch(() => undefined);
  await expect.poll(async () => (await policy())?.egress).toEqual([
    allow("api.example"),
    allow("*.b.example"),
  ]);
});

test.describe("without script", () => {
  test.use({ javaScriptEnabled: false });

  test("the policy reads, and rules are added, moved and removed by forms", async ({ page, api }) => {
    const id = await limited(api, { egress: [allow("a.example")] });
    await ask(api, id, "wanted.example");
    await logIn(page, `/console/sandboxes/${id}/network`);
    await expect(ruleRows(page)).toHaveText(["a.example"]);
    await decision(page, "wanted.example").getByRole("button", { name: "Allow wanted.example" }).click();
    await expect(page.locator(".toasts")).toContainText("new rule for wanted.example");
    await expect(ruleRows(page)).toHaveText(["wanted.example", "a.example"]);
    await rules(page).getByRole("button", { name: "Move the rule for a.example up" }).click();
    await expect(ruleRows(page)).toHaveText(["a.example", "wanted.example"]);
    await rules(page).getByRole("button", { name: "Remove the rule for wanted.example" }).click();
    await expect(ruleRows(page)).toHaveText(["a.example"]);
    await rules(page).getByRole("textbox", { name: "Target of the new rule" }).fill("b.example/path");
    await rules(page).getByRole("button", { name: "Add rule" }).click();
    await expect(page.locator(".toasts")).toContainText("write the host alone");
    await page.getByRole("link", { name: "Propose a policy" }).click();
    await page.getByRole("link", { name: "Allow what was refused, too" }).click();
    await page.getByRole("group", { name: "Proposed policy" }).getByRole("button", { name: "Apply" }).click();
    await expect(page.locator(".toasts")).toContainText("The policy is replaced");
    expect((await policyOf(api, id)).egress).toContainEqual(allow("wanted.example"));
  });
});
