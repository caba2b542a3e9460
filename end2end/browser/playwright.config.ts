// Browser tests of the console against a running server:
//   OSB_URL      its address (http://127.0.0.1:8080)
//   OSB_API_KEY  its API key
//   OSB_IMAGE    an image with bash and python3 that is on the host
//   OSB_SERVER   the server's program, for tests with servers of their own
//   OSB_CONFIG   the server's configuration: then there are two workers, with a server each
//   OSB_CHROMIUM the browser (/usr/bin/chromium)
//   OSB_TEST_PATIENCE  factor of all deadlines (1)
//   OSB_TRACE    records a trace of each test, in end2end/test-results

import { defineConfig } from "@playwright/test";

/** Factor of deadlines on a busy machine. */
const patience = Number(process.env.OSB_TEST_PATIENCE ?? 1);

export default defineConfig({
  testDir: ".",
  outputDir: "../test-results",
  timeout: 90_000 * patience,
  expect: { timeout: 20_000 * patience },
  // On two processors, a third one makes the run no shorter.
  workers: process.env.OSB_CONFIG ? 2 : 1,
  retries: 0,
  forbidOnly: !!process.env.CI,
  reporter: [["list"]],
  use: {
    baseURL: process.env.OSB_URL ?? "http://127.0.0.1:8080",
    // A trace costs a third of a test's time.
    trace: process.env.OSB_TRACE ? "on" : "off",
    launchOptions: {
      executablePath: process.env.OSB_CHROMIUM ?? "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
  projects: [
    { name: "chromium", testMatch: "*.spec.ts" },
    // `cargo xtask bench console`
    { name: "bench", testMatch: "bench.ts" },
    { name: "screenshots", testMatch: "screenshots.ts" },
  ],
});
