// Servers that the tests start themselves. Needs OSB_SERVER, the server's program.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect } from "@playwright/test";

const program = process.env.OSB_SERVER ?? "";
const config = process.env.OSB_CONFIG ?? "";
const key = process.env.OSB_API_KEY ?? "";

/** Whether servers can be started. */
export const canStart = program !== "";

export type Runtime = "sim" | "docker";

export type Kind = {
  runtime: Runtime;
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
    return OwnServer.configured(environment, (port, store) => [
      `[server]\nhost = "127.0.0.1"\nport = ${port}\napi_key = "${key}"`,
      `[runtime]\ntype = "${runtime}"`,
      `[store]\ntype = "sqlite"\npath = "${store}"`,
      more,
    ]);
  }

  /** Another server with the configuration of the server under test. */
  static async like(file: string): Promise<OwnServer> {
    const text = readFileSync(file, "utf8");
    return OwnServer.configured({}, (port, store) => [
      text.replace(/^port = \d+$/m, `port = ${port}`).replace(/^path = .*$/m, `path = "${store}"`),
    ]);
  }

  private static async configured(
    environment: Record<string, string>,
    lines: (port: number, store: string) => string[],
  ): Promise<OwnServer> {
    // What a server leaves on the engine is known by its store, so that is kept with that of the server
    // under test; so is the log.
    const folder = mkdtempSync(join(config === "" ? tmpdir() : dirname(config), "osb-server-"));
    const port = await freePort();
    const text = lines(port, join(folder, "store.db"));
    writeFileSync(join(folder, "config.toml"), text.join("\n"), { mode: 0o600 });
    const server = new OwnServer(`http://127.0.0.1:${port}`, folder, environment);
    try {
      await server.start();
    } catch (error) {
      await server.stop();
      throw error;
    }
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

}

/**
 * The servers of a worker, started when a test first needs them. Without OSB_SERVER, all tests use the
 * server under test.
 */
export class Servers {
  private readonly own = new Map<Runtime, Promise<OwnServer>>();

  /** `number` counts workers from 0. */
  constructor(private readonly number: number) {}

  /** Address of the server with this runtime. The first worker has the server under test. */
  async url(runtime: Runtime, given: string): Promise<string> {
    const isGiven = runtime === "docker" && (this.number === 0 || config === "");
    if (!canStart || isGiven) return given;
    const start = () => (runtime === "docker" ? OwnServer.like(config) : OwnServer.make({ runtime }));
    if (!this.own.has(runtime)) this.own.set(runtime, start());
    return (await this.own.get(runtime)!).url;
  }

  async stop(): Promise<void> {
    const started = await Promise.allSettled(this.own.values());
    await Promise.all(started.map((it) => (it.status === "fulfilled" ? it.value.stop() : undefined)));
  }
}
