// A Docker engine that a test takes away, or lets refuse: a socket between a server and the host's
// engine.

import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const HOST = (process.env.DOCKER_HOST ?? "unix:///var/run/docker.sock").replace(/^unix:\/\//, "");

export class Engine {
  private readonly folder = mkdtempSync(join(tmpdir(), "osb-engine-"));
  private readonly open = new Set<Socket>();
  private server?: Server;
  /** Message with which every new container is refused. */
  refusal?: string;

  /** As DOCKER_HOST has it. */
  get address(): string {
    return `unix://${this.folder}/docker.sock`;
  }

  async start(): Promise<void> {
    this.server = createServer((client) => {
      const engine = connect(HOST);
      for (const socket of [client, engine]) {
        this.open.add(socket);
        socket.on("error", () => {});
        socket.on("close", () => {
          this.open.delete(socket);
          client.destroy();
          engine.destroy();
        });
      }
      // A client sends the head of a request in one piece.
      client.on("data", (data) => {
        if (this.refusal !== undefined && /^POST \S*\/containers\/create/.test(data.toString("latin1"))) {
          const body = JSON.stringify({ message: this.refusal });
          const length = Buffer.byteLength(body);
          client.end(
            `HTTP/1.1 500 Refused\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ${length}\r\n\r\n${body}`,
          );
        } else {
          engine.write(data);
        }
      });
      client.on("end", () => engine.end());
      engine.pipe(client);
    });
    this.server.listen(join(this.folder, "docker.sock"));
    await once(this.server, "listening");
  }

  /** Takes it away: nothing listens any more, and what is open breaks. */
  async stop(): Promise<void> {
    const closed = once(this.server!, "close");
    this.server!.close();
    for (const socket of this.open) socket.destroy();
    await closed;
  }

  remove(): void {
    for (const socket of this.open) socket.destroy();
    this.server?.close();
    rmSync(this.folder, { recursive: true });
  }
}
