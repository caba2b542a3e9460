// Pictures of every page for docs/console: both themes, wide and narrow. `npm run screenshots`.

import { expect, hydrated, image, logIn, screen, test, type } from "./console";

const out = new URL("../../docs/console/", import.meta.url).pathname;
const sizes = { 1440: { width: 1440, height: 900 }, 390: { width: 390, height: 844 } };

test.describe.configure({ mode: "serial" });

for (const colorScheme of ["light", "dark"] as const) {
  for (const [name, viewport] of Object.entries(sizes)) {
    test(`${colorScheme} ${name}`, async ({ browser, api, baseURL }) => {
      test.setTimeout(180_000);
      const context = await browser.newContext({ baseURL, colorScheme, viewport });
      const page = await context.newPage();
      const shot = (what: string) =>
        page.screenshot({
          path: `${out}${what}-${colorScheme}-${name}.png`,
          fullPage: name === "390",
          // A sticky bar would be in the middle of a full-page screenshot.
          style: ".rail { position: static !important; }",
        });

      await page.goto("/console/login");
      await shot("login");
      await logIn(page);
      const list = "/console/sandboxes?q=suite%3Dbrowser";
      await page.goto(`${list}+team%3Dnobody`);
      await hydrated(page);
      await shot("empty");

      const failed = await api.create(
        ["sh", "-c", "echo 'cannot open /data/model.bin: no such file'; sleep 1; exit 2"],
        { team: "vision", step: "eval" },
      );
      for (const team of ["search", "vision", "agents", "search"]) {
        await api.create(undefined, { team });
      }
      const serve = "mkdir -p /srv/www && echo '<h1>Results of train-7b</h1><p>Step 1,200 of 4,000. Loss 0.31.</p>' > /srv/www/index.html; " +
        "python3 -m http.server 8000 -d /srv/www > /dev/null 2>&1 & ";
      const busy = serve + "cd /root && mkdir -p project/src project/data && seq 1 40 > project/data/rows.csv; " +
        "printf 'import sys\n\n\ndef main():\n    print(\"rows:\", len(sys.stdin.readlines()))\n\n\nmain()\n' > project/src/count.py; " +
        "while :; do echo \"$(date +%T) step done, loss 0.$RANDOM\"; for i in {1..30000}; do :; done; sleep 0.5; done";
      const sandbox = await api.create(["bash", "-c", busy], {
        name: "train-7b",
        team: "agents",
        step: "train",
        dataset: "web-pages-2026-10-of-three-languages-without-duplicates",
      });
      await page.goto(list);
      await hydrated(page);
      await expect(page.locator("#main")).toContainText("Failed");
      await shot("sandboxes");
      await page.keyboard.press("?");
      await shot("keys");
      await page.keyboard.press("Escape");
      await page.keyboard.press("Control+k");
      await page.keyboard.type("tra");
      await expect(page.getByRole("option").filter({ hasText: "train-7b" })).toBeVisible();
      await shot("palette");
      await page.keyboard.press("Escape");
      await page.goto("/console");
      await hydrated(page);
      await shot("home");

      await page.goto("/console/create");
      await hydrated(page);
      await page.getByLabel("Image").fill(image);
      await page.getByLabel("Label name").last().fill("team");
      await page.getByLabel("Value of team").fill("vision");
      await page.getByLabel("Lifetime").selectOption({ label: "Another time …" });
      await page.getByLabel("Time to live").fill("5s");
      await expect(page.locator("#ttl-problem")).not.toBeEmpty();
      await shot("create");

      await page.goto("/console/create");
      await hydrated(page);
      await page.locator("summary").filter({ hasText: /^Advanced$/ }).press("Enter");
      await page.getByLabel("Network", { exact: true }).selectOption("only");
      const hosts = page.getByLabel("Hosts", { exact: true });
      await hosts.fill("*.packages.example\nhttps://models.example/");
      await expect(page.locator("#network_rules-problem")).toContainText("Line 2: ");
      await hosts.scrollIntoViewIfNeeded();
      await shot("create-network");

      await page.goto(`/console/sandboxes/${sandbox.id}`);
      await hydrated(page);
      await shot("overview");
      await page.goto(`/console/sandboxes/${sandbox.id}?port=70000`);
      await hydrated(page);
      await shot("port");
      await page.goto(`/console/sandboxes/${failed.id}`);
      await hydrated(page);
      await shot("failed");
      await page.goto(`/console/sandboxes/${failed.id}/diagnostics`);
      await hydrated(page);
      await shot("diagnostics");

      await page.goto(`/console/sandboxes/${sandbox.id}/files?path=/root/project`);
      await hydrated(page);
      await shot("files");
      await page.goto(`/console/sandboxes/${sandbox.id}/files?path=/root/project/src/count.py`);
      await hydrated(page);
      await shot("file");
      await page.getByRole("button", { name: "Edit" }).click();
      await page.getByRole("textbox", { name: "Text of count.py" }).press("Control+Home");
      await page.keyboard.type("# Counts rows.\n");
      await page.getByRole("button", { name: "Review and save" }).click();
      await shot("file-difference");
      await page.getByRole("button", { name: "Back to the text" }).click();
      await page.getByRole("button", { name: "Discard" }).click();

      await page.goto(`/console/sandboxes/${sandbox.id}/run`);
      await hydrated(page);
      await page.getByLabel("Command", { exact: true }).fill("python3 /root/project/src/count.py < /root/project/data/rows.csv");
      await page.keyboard.press("Enter");
      await expect(page.locator(".run-result")).toContainText("rows: 40");
      await shot("run");
      await page.goto(`/console/sandboxes/${sandbox.id}/logs`);
      await hydrated(page);
      await expect(page.locator(".log-lines")).toContainText("step done");
      await shot("logs");
      await page.goto(`/console/sandboxes/${sandbox.id}/metrics`);
      await hydrated(page);
      await expect(page.locator(".chart-line").first()).toBeAttached();
      await shot("metrics");
      const limited = await api.create(
        undefined,
        { name: "crawler", team: "agents" },
        { defaultAction: "deny", egress: [{ action: "allow", target: "*.packages.example" }, { action: "allow", target: "10.20.0.0/16" }] },
      );
      const names = ["mirror.packages.example", "telemetry.example", "models.example", "www.models.example"];
      await api.run(limited.id, `${names.map((it) => `getent hosts ${it} &`).join(" ")} wait`);
      await page.goto(`/console/sandboxes/${limited.id}/network`);
      await hydrated(page);
      await expect(page.locator(".decision-list")).toContainText("telemetry.example");
      await shot("network");
      await page.goto(`/console/sandboxes/${sandbox.id}/preview?port=8000`);
      await hydrated(page);
      await expect(page.frameLocator("iframe").getByRole("heading")).toBeVisible();
      await shot("preview");
      const before = await api.snapshot(sandbox.id, "before step 2,000");
      await api.createFrom(before, { name: "train-7b-retry", team: "agents" });
      await page.goto("/console/snapshots");
      await hydrated(page);
      await shot("snapshots");
      await page.goto(`/console/snapshots/${before}`);
      await hydrated(page);
      await shot("snapshot");
      await page.goto("/console/pools");
      await hydrated(page);
      await shot("pools-empty");
      await api.pool("python-3-12", 1);
      await api.claim("python-3-12", { team: "agents" });
      await expect.poll(() => api.readyIn("python-3-12")).toBe(1);
      await page.goto("/console/pools");
      await hydrated(page);
      await shot("pools");
      await page.locator("summary").filter({ hasText: "Add a pool" }).click();
      await shot("pool-add");
      await page.goto("/console/pools/python-3-12");
      await hydrated(page);
      await shot("pool");
      await api.call("DELETE", "/pools/python-3-12");
      await page.goto("/console/templates");
      await hydrated(page);
      await shot("templates-empty");
      const ready = await api.template("python-tools");
      const built = await api.template("agent-tools", {
        build: { dockerfile: `FROM ${image}\nRUN echo installing the tools && mkdir -p /opt/tools` },
      });
      await api.createFromTemplate(ready, { name: "evaluation", team: "agents" });
      await page.goto("/console/templates");
      await hydrated(page);
      await shot("templates");
      await page.locator("summary").filter({ hasText: "Make a template" }).click();
      await shot("template-add");
      await page.goto(`/console/templates/${built}`);
      await hydrated(page);
      await shot("template");
      await page.goto("/console/design");
      await hydrated(page);
      await shot("design");
      await page.goto(`/console/sandboxes/${sandbox.id}`);
      await hydrated(page);
      await page.locator("[data-act-button]").filter({ hasText: "Delete" }).click();
      await expect(page.getByRole("alertdialog")).toBeVisible();
      await shot("delete");
      await page.keyboard.press("Escape");

      await page.goto(`/console/sandboxes/${sandbox.id}/terminal`);
      await expect(page.locator(".terminal-bar")).toContainText("Connected");
      await type(page, "ls --color /");
      await type(page, "uname -sr; nproc");
      await expect.poll(() => screen(page)).toContain("Linux");
      await shot("terminal");
      await page.getByRole("button", { name: "Keep in the dock" }).click();
      const dock = page.getByRole("region", { name: "Dock" });
      await dock.getByRole("button", { name: "Further shell in this sandbox" }).click();
      await page.goto(`/console/sandboxes/${sandbox.id}/logs`);
      await hydrated(page);
      await page.getByRole("button", { name: "Keep in the dock" }).click();
      await page.goto("/console");
      await hydrated(page);
      if (name === "1440") await dock.getByRole("button", { name: "Side by side" }).click();
      await expect(dock.locator(".log-line").last()).toContainText("step done");
      await expect(dock.locator(".terminal-state").first()).toContainText("Connected");
      await shot("dock");
      for (const close of [/^Close the log/, /^End the shell/, /the shell goes on/]) {
        await dock.getByRole("button", { name: close }).click();
      }
      await page.goto(`/console/sandboxes/${sandbox.id}/terminal`);
      await expect(page.locator(".terminal-bar")).toContainText("Connected");
      const other = await context.newPage();
      await other.goto("/console/sandboxes");
      await other.getByRole("button", { name: "Log out" }).click();
      await expect(page.locator(".terminal-bar")).toContainText("signed out");
      await expect(page.getByRole("alert")).toContainText("signed out");
      await shot("signed-out");

      const key = { name: "nightly build", role: "operator" };
      const made = await api.call("POST", "/api-keys", key);
      await logIn(page, "/console/access");
      await hydrated(page);
      await shot("access");
      await page.goto("/console/events");
      await hydrated(page);
      await shot("events");
      await page.goto("/console/settings?check=store");
      await hydrated(page);
      await shot("settings");
      const { apiKey } = (await made.json()) as { apiKey: { id: string } };
      await api.call("DELETE", `/api-keys/${apiKey.id}`);

      // With a user there is a name to sign in with.
      const user = { name: "zoe", password: "correct-horse-battery", role: "operator" };
      const added = await api.call("POST", "/users", user);
      await page.goto("/console/login");
      await expect(page.getByLabel("User name")).toBeVisible();
      await shot("login-user");
      await api.call("DELETE", `/users/${((await added.json()) as { id: string }).id}`);
      await context.close();
    });
  }
}
