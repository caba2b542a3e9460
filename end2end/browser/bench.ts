// What people see of the console's speed, for `cargo xtask bench console`:
//   OSB_FIGURES  file that gets a line of JSON per figure
//   OSB_TURNS    samples of what is measured one by one
// Times of the page and of this process are of one clock.

import { appendFile } from "node:fs/promises";
import type { Browser, Page } from "@playwright/test";
import { expect, hydrated, logIn, screen, test, type } from "./console";

const turns = Number(process.env.OSB_TURNS ?? 10);
/** Changes of sandboxes in a second, and for how many seconds. */
const storm = { rate: 50, seconds: 10 };
/** Lines of output in a terminal. */
const lines = 50_000;

type Figure = { ms: { name: string; samples: number[] } } | { bytes: { name: string; bytes: number } };

async function report(figure: Figure): Promise<void> {
  await appendFile(process.env.OSB_FIGURES!, `${JSON.stringify(figure)}\n`);
}

/** Milliseconds of the clock that pages use, too. */
const now = () => performance.timeOrigin + performance.now();

/** Runs `visit` in a browser that has no file of the console yet, but a session. */
async function cold(browser: Browser, from: Page, visit: (page: Page) => Promise<void>): Promise<void> {
  const storageState = await from.context().storageState();
  const context = await browser.newContext({ storageState, baseURL: new URL(from.url()).origin });
  try {
    await visit(await context.newPage());
  } finally {
    await context.close();
  }
}

/** Notes frames and long tasks of a page from now on. */
async function noteFrames(page: Page): Promise<void> {
  await page.evaluate(() => {
    const noted = { frames: [] as number[], tasks: [] as number[] };
    Object.assign(window, { __noted: noted });
    let last = performance.now();
    const next = (time: number) => {
      noted.frames.push(time - last);
      last = time;
      requestAnimationFrame(next);
    };
    requestAnimationFrame((time) => {
      last = time;
      requestAnimationFrame(next);
    });
    new PerformanceObserver((list) => {
      noted.tasks.push(...list.getEntries().map((entry) => entry.duration));
    }).observe({ type: "longtask" });
  });
}

function noted(page: Page): Promise<{ frames: number[]; tasks: number[] }> {
  type Noted = { frames: number[]; tasks: number[] };
  return page.evaluate(() => (window as unknown as { __noted: Noted }).__noted);
}

test.describe("bench", () => {
  test.setTimeout(300_000);

  test("crowd: first paint and size of a first visit", async ({ page, browser }) => {
    await logIn(page);
    const paints: number[] = [];
    const interactive: number[] = [];
    let size = 0;
    for (let turn = 0; turn < turns; turn++) {
      await cold(browser, page, async (page) => {
        const began = now();
        await page.goto("/console/sandboxes");
        await hydrated(page);
        interactive.push(now() - began);
        const { paint, bytes } = await page.evaluate(() => ({
          paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
          bytes: (performance.getEntriesByType("resource") as PerformanceResourceTiming[])
            .filter(({ name }) => /\.(js|wasm)($|\?)/.test(name))
            .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0),
        }));
        expect(paint).toBeGreaterThan(0);
        paints.push(paint);
        size = bytes;
      });
    }
    await report({ ms: { name: "list page, cold cache: first contentful paint", samples: paints } });
    await report({ ms: { name: "list page, cold cache: live", samples: interactive } });
    await report({ bytes: { name: "script and wasm of the first page, as sent", bytes: size } });
  });

  test("crowd: a create appears in an open tab", async ({ page, api }) => {
    await logIn(page);
    await hydrated(page);
    await page.evaluate(() => {
      const seen: Record<string, number> = {};
      Object.assign(window, { __seen: seen });
      new MutationObserver(() => {
        const time = performance.timeOrigin + performance.now();
        for (const link of document.querySelectorAll<HTMLAnchorElement>("[data-row-link]")) {
          seen[link.href.split("/").pop()!] ??= time;
        }
      }).observe(document.getElementById("main")!, { childList: true, subtree: true });
    });
    const samples: number[] = [];
    for (let turn = 0; turn < turns; turn++) {
      const { id } = await api.create();
      const answered = now();
      const seen = await page.waitForFunction(
        (id) => (window as unknown as { __seen: Record<string, number> }).__seen[id],
        id,
      );
      // A row may be there before its creator has read the answer.
      samples.push(Math.max(0, (await seen.jsonValue()) - answered));
    }
    await report({ ms: { name: "create answered: the row is in an open tab", samples } });
  });

  test("storm: frames while sandboxes change and the list is scrolled", async ({ page, api }) => {
    const response = await api.call("GET", "/sandboxes?pageSize=200");
    const { items } = (await response.json()) as { items: { id: string }[] };
    await logIn(page);
    await hydrated(page);
    await expect(page.locator(".pager")).toContainText("in total");
    await noteFrames(page);
    const changes = storm.rate * storm.seconds;
    await page.mouse.move(600, 500);
    const began = now();
    for (let change = 0; change < changes; change++) {
      const { id } = items[change % items.length];
      const due = began + (change * 1_000) / storm.rate;
      await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - now())));
      const patched = api.call("PATCH", `/sandboxes/${id}/metadata`, { round: String(change) });
      if (change % 5 === 0) await page.mouse.wheel(0, change % 100 < 50 ? 120 : -120);
      await patched;
    }
    const { frames, tasks } = await noted(page);
    // Proves that the changes came.
    const last = items[(changes - 1) % Math.min(items.length, changes)];
    await page.goto(`/console/sandboxes?q=id%3A${last.id}`);
    await expect(page.locator("table.list tbody tr")).toHaveCount(1);
    await expect(page.locator("table.list")).toContainText(`round`);
    const name = `${storm.rate} changes/s, scrolling`;
    await report({ ms: { name: `frames with ${name}`, samples: frames } });
    await report({ ms: { name: `tasks over 50 ms with ${name}`, samples: tasks } });
  });

  test("docker: lines of a log reach an open tab", async ({ page, api }) => {
    const { id } = await api.create(["bash", "-c", "while :; do echo at:$(date +%s%N); sleep 0.1; done"]);
    await logIn(page, `/console/sandboxes/${id}/logs`);
    await hydrated(page);
    await expect(page.locator(".log-lines")).toContainText("at:");
    await page.evaluate(() => {
      const seen = new Map<string, number>();
      Object.assign(window, { __lag: seen });
      new MutationObserver(() => {
        const time = performance.timeOrigin + performance.now();
        for (const [, at] of document.querySelector(".log-lines")!.textContent!.matchAll(/at:(\d{19})/g)) {
          if (!seen.has(at)) seen.set(at, time - Number(at) / 1e6);
        }
      }).observe(document.querySelector(".log-frame")!, {
        childList: true,
        subtree: true,
        characterData: true,
      });
    });
    const lags = () =>
      page.evaluate(() => [...(window as unknown as { __lag: Map<string, number> }).__lag.values()]);
    // What the page was rendered with is older than the page.
    const before = 60;
    await expect.poll(async () => (await lags()).length, { timeout: 120_000 }).toBeGreaterThan(before + 10 * turns);
    await report({ ms: { name: "log: printed in the sandbox to shown", samples: (await lags()).slice(before) } });
  });

  test("docker: resource use arrives each second", async ({ page, sandbox }) => {
    const arrivals: number[] = [];
    page.on("websocket", (socket) =>
      socket.on("framereceived", ({ payload }) => {
        const text = String(payload);
        if (text.includes('"delta"') && text.includes("/metrics")) arrivals.push(now());
      }),
    );
    await logIn(page, `/console/sandboxes/${sandbox.id}/metrics`);
    await hydrated(page);
    await expect.poll(() => arrivals.length, { timeout: 60_000 }).toBeGreaterThan(20);
    const samples = arrivals.slice(1).map((arrival, at) => arrival - arrivals[at]);
    await report({ ms: { name: "metrics: time between two samples", samples } });
  });

  test("docker: a flood of lines, and an interrupt of one", async ({ page, sandbox }) => {
    await logIn(page, `/console/sandboxes/${sandbox.id}/terminal`);
    await expect(page.locator(".terminal-bar")).toContainText("Connected");
    await noteFrames(page);
    const floods: number[] = [];
    const interrupts: number[] = [];
    const whileLines: number[] = [];
    const whileYes: number[] = [];
    // Long tasks since the last call.
    let known = 0;
    const newTasks = async () => {
      const { tasks } = await noted(page);
      const found = tasks.slice(known);
      known = tasks.length;
      return found;
    };
    for (let turn = 0; turn < Math.min(turns, 10); turn++) {
      await page.locator(".terminal .xterm").click();
      await page.keyboard.type(`clear; seq -f 'line %.0f of a log' ${lines}; echo all-$((40+${turn}))`);
      let began = now();
      await page.keyboard.press("Enter");
      await shown(page, `all-${40 + turn}`);
      floods.push(now() - began);
      whileLines.push(...(await newTasks()));

      await type(page, "yes flood");
      await shown(page, "flood");
      // Long enough to fill what lies between the program and the page.
      await page.waitForTimeout(1_000);
      began = now();
      await page.keyboard.press("Control+c");
      await shown(page, /\^C.*[#$]\s*$/s);
      interrupts.push(now() - began);
      await type(page, `echo back-$((40+${turn}))`);
      await shown(page, `back-${40 + turn}`);
      whileYes.push(...(await newTasks()));
    }
    expect(await screen(page)).toContain("back-");
    await report({ ms: { name: `terminal: ${lines} lines, Enter to the last`, samples: floods } });
    await report({ ms: { name: "terminal: tasks over 50 ms meanwhile", samples: whileLines } });
    await report({ ms: { name: "terminal: Ctrl-C on `yes` to the prompt", samples: interrupts } });
    await report({ ms: { name: "terminal: tasks over 50 ms with `yes`", samples: whileYes } });
  });
});

/** Waits, frame by frame, until the terminal shows the text. */
async function shown(page: Page, text: string | RegExp): Promise<void> {
  const pattern = text instanceof RegExp ? text.source : text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
  await page.waitForFunction(
    (pattern) => new RegExp(pattern, "s").test(document.querySelector(".xterm-rows")?.textContent ?? ""),
    pattern,
    { polling: "raf" },
  );
}
