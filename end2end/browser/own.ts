// Servers of a test's own, which it fills, stops and starts again. Needs OSB_SERVER, the server's
// program; with other servers under test, these tests are left out.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Api, expect, key, test as base } from "./console";

const program = process.env.OSB_SERVER ?? "";

type Kind = {
  runtime: "sim" | "docker";
  /** More of its configuration. */
  more?: string;
  environment?: Record<string, string>;
  /** Called after its end. */
  after?: () => void;
};

/** A port that nothing listens on. */
async function freePort(): Promise<number> {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  listener.close();
  await once(listener, "close");
  return port;
}

/** A server process over a store of its own. */
export class OwnServer {
  private process?: ChildProcess;

  private constructor(
    readonly url: string,
    readonly folder: string,
    private readonly environment: Record<string, string>,
  ) {}

  static async make({ runtime, more = "", environment = {} }: Kind): Promise<OwnServer> {
    const folder = mkdtempSync(join(tmpdir(), "osb-server-"));
    const port = await freePort();
    const text = [
      `[server]\nhost = "127.0.0.1"\nport = ${port}\napi_key = "${key}"`,
      `[runtime]\ntype = "${runtime}"`,
      `[store]\ntype = "sqlite"\npath = "${join(folder, "store.db")}"`,
      more,
    ];
    writeFileSync(join(folder, "config.toml"), text.join("\n"), { mode: 0o600 });
    const server = new OwnServer(`http://127.0.0.1:${port}`, folder, environment);
    await server.start();
    return server;
  }

  /** Starts it, and waits until its runtime answers as well. */
  async start(): Promise<void> {
    const log = openSync(join(this.folder, "log"), "a");
    this.process = spawn(program, ["--config", join(this.folder, "config.toml")], {
      env: { ...process.env, ...this.environment },
      stdio: ["ignore", log, log],
    });
    await expect
      .poll(async () => {
        expect(this.process!.exitCode, `the server ended, see ${this.folder}/log`).toBeNull();
        return await fetch(`${this.url}/ready`).then(
          (answer) => answer.status,
          () => 0,
        );
      })
      .toBe(200);
  }

  /** Ends the process; what it stored stays. */
  async stop(): Promise<void> {
    const process = this.process;
    if (!process || process.exitCode !== null || process.signalCode !== null) return;
    const ended = once(process, "exit");
    process.kill("SIGTERM");
    await ended;
  }

  async remove(): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true });
  }
}

/** Tests of which each has a server of this kind. */
export function testsWithOwn(kind: () => Promise<Kind>) {
  return base.extend<{ own: OwnServer; api: Api }>({
    own: async ({}, use) => {
      base.skip(program === "", "OSB_SERVER names no program");
      const made = await kind();
      try {
        const own = await OwnServer.make(made);
        try {
          await use(own);
        } finally {
          await own.remove();
        }
      } finally {
        made.after?.();
      }
    },
    baseURL: async ({ own }, use) => use(own.url),
  });
}
