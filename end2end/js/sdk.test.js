// The official JavaScript SDK against the server: commands, sessions, isolated sessions, network
// policies, volumes, pools, files, metrics, lifecycle, snapshots.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { SandboxApiException, SandboxManager } from "@alibaba-group/opensandbox";

import { connection, metadata, onEveryRoute, texts } from "./sandbox.js";
import "./isolated.js";
import "./network_policy.js";
import "./pools.js";
import "./snapshots.js";
import "./volumes.js";

onEveryRoute(describe, before, after, (box) => {
  test("output arrives by lines, with the exit code", async () => {
    const seen = [];
    const run = await box().commands.run("echo one; echo two >&2; exit 3", {}, {
      onStdout: ({ text }) => void seen.push(text),
    });
    assert.deepEqual(texts(run.logs.stdout), ["one"]);
    assert.deepEqual(texts(run.logs.stderr), ["two"]);
    assert.deepEqual(seen, ["one"]);
    assert.equal(run.exitCode, 3);
    assert.equal(run.error.value, "3");
    const good = await box().commands.run("pwd; echo $COLOUR", {
      workingDirectory: "/usr/lib",
      envs: { COLOUR: "grün" },
    });
    assert.deepEqual(texts(good.logs.stdout), ["/usr/lib", "grün"]);
    assert.equal(good.exitCode, 0);
  });

  test("lines of every length and kind are whole", async () => {
    const run = await box().commands.run(
      "seq 1 20000; head -c 300000 /dev/zero | tr '\\0' x; printf '\\n\u2028 \u0085 日本\\n'",
    );
    const lines = texts(run.logs.stdout);
    assert.deepEqual(lines.slice(0, 20000), Array.from({ length: 20000 }, (_, n) => `${n + 1}`));
    assert.equal(lines[20000], "x".repeat(300000));
    assert.equal(lines[20001], "\u2028 \u0085 日本");
  });

  test("a timeout and an interrupt end a command", async () => {
    const late = await box().commands.run("sleep 600", { timeoutSeconds: 1 });
    assert.equal(late.exitCode, -1);
    let interrupted;
    const run = await box().commands.run("sleep 600", {}, {
      onInit: ({ id }) => {
        interrupted = box().commands.interrupt(id);
      },
    });
    await interrupted;
    assert.ok(run.error.name && run.error.value);
  });

  test("a background command has status and logs", async () => {
    const script = "for n in 1 2 3; do echo line $n; sleep 0.1; done; exit 4";
    const { id } = await box().commands.run(script, { background: true });
    let status;
    let content = "";
    let cursor;
    do {
      status = await box().commands.getCommandStatus(id);
      const logs = await box().commands.getBackgroundCommandLogs(id, cursor);
      content += logs.content;
      cursor = logs.cursor;
    } while (status.running);
    assert.equal(content, "line 1\nline 2\nline 3\n");
    assert.equal(status.exitCode, 4);
    assert.ok(status.finishedAt >= status.startedAt);
  });

  test("a session keeps variables and directory", async () => {
    const { commands } = box();
    const id = await commands.createSession({ workingDirectory: "/tmp" });
    const failed = await commands.runInSession(id, "cd /usr; export KEPT='a b'; sh -c 'exit 7'");
    assert.equal(failed.exitCode, 7);
    const run = await commands.runInSession(id, "pwd; echo $KEPT");
    assert.deepEqual(texts(run.logs.stdout), ["/usr", "a b"]);
    const there = await commands.runInSession(id, "pwd", { workingDirectory: "/var" });
    assert.deepEqual(texts(there.logs.stdout), ["/var"]);
    const late = await commands.runInSession(id, "sleep 600", { timeoutSeconds: 1 });
    assert.ok(late.error);
    await commands.deleteSession(id);
    await assert.rejects(commands.runInSession(id, "true"), SandboxApiException);
  });

  test("files go in and out, are found, changed and removed", async () => {
    const { files } = box();
    const bytes = new Uint8Array(3_000_000).map((_, n) => n % 251);
    async function* pieces() {
      for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536);
    }
    await files.createDirectories([{ path: "/tmp/js", mode: 755 }]);
    await files.writeFiles([
      { path: "/tmp/js/a.txt", data: "hello ünïcödé\nsecond\nthird\n", mode: 640 },
      { path: "/tmp/js/b.bin", data: bytes },
    ]);
    if (!box().connectionConfig.useServerProxy) {
      await files.writeFiles([{ path: "/tmp/js/c.bin", data: pieces() }]);
      assert.deepEqual(await files.readBytes("/tmp/js/c.bin"), bytes);
    }
    assert.equal(await files.readFile("/tmp/js/a.txt"), "hello ünïcödé\nsecond\nthird\n");
    assert.equal(await files.readFile("/tmp/js/a.txt", { range: "bytes=0-4" }), "hello");
    assert.equal(await files.readFile("/tmp/js/a.txt", { offset: 2, limit: 1 }), "second");
    assert.deepEqual(await files.readBytes("/tmp/js/b.bin"), bytes);
    const info = (await files.getFileInfo(["/tmp/js/a.txt"]))["/tmp/js/a.txt"];
    assert.deepEqual([info.mode, info.type, info.owner], [640, "file", "root"]);
    const found = await files.search({ path: "/tmp/js", pattern: "*.txt" });
    assert.deepEqual(found.map(({ path }) => path), ["/tmp/js/a.txt"]);
    const listed = await files.listDirectory({ path: "/tmp/js" });
    assert.ok(listed.some(({ path }) => path === "/tmp/js/b.bin"));
    const [replaced] = await files.replaceContentsDetailed([
      { path: "/tmp/js/a.txt", oldContent: "second", newContent: "2nd" },
    ]);
    assert.equal(replaced.replacedCount, 1);
    await files.setPermissions([{ path: "/tmp/js/a.txt", mode: 600 }]);
    await files.moveFiles([{ src: "/tmp/js/a.txt", dest: "/tmp/js/moved/a.txt" }]);
    await files.deleteFiles(["/tmp/js/b.bin"]);
    await files.deleteDirectories(["/tmp/js"]);
    await assert.rejects(files.getFileInfo(["/tmp/js/b.bin"]), (error) => error.statusCode === 404);
  });

  test("metrics are the sandbox's", async () => {
    const metrics = await box().getMetrics();
    assert.equal(metrics.memoryTotalMiB, 256);
    assert.ok(metrics.memoryUsedMiB > 0 && metrics.memoryUsedMiB <= 256);
    assert.ok(metrics.cpuUsedPercentage >= 0 && metrics.cpuUsedPercentage <= 100);
  });

  test("it is paused and resumed", async () => {
    const manager = SandboxManager.create({ connectionConfig: connection() });
    try {
      await manager.pauseSandbox(box().id);
      assert.equal((await manager.getSandboxInfo(box().id)).status.state, "Paused");
      await manager.resumeSandbox(box().id);
      const run = await box().commands.run("echo again");
      assert.deepEqual(texts(run.logs.stdout), ["again"]);
    } finally {
      await manager.close();
    }
  });

  test("its metadata are changed and removed", async () => {
    const changed = await box().patchMetadata({ colour: "blue", shape: "round" });
    assert.deepEqual([changed.metadata.colour, changed.metadata.suite], ["blue", metadata.suite]);
    const manager = SandboxManager.create({ connectionConfig: connection() });
    try {
      const left = await manager.patchSandboxMetadata(box().id, { colour: null });
      assert.deepEqual([left.metadata.colour, left.metadata.shape], [undefined, "round"]);
      assert.deepEqual((await box().getInfo()).metadata, left.metadata);
    } finally {
      await manager.close();
    }
  });

  test("an endpoint leads to a program of the sandbox", async () => {
    const execd = await box().getEndpoint(44772);
    const url = await box().getEndpointUrl(44772);
    assert.ok(url.endsWith(execd.endpoint), `${url} and ${execd.endpoint}`);
    const answer = await fetch(`${url}/ping`, { headers: execd.headers ?? {} });
    assert.equal(answer.status, 200);
    await answer.body?.cancel();
  });

  test("it is listed, renewed and found by its metadata", async () => {
    const manager = SandboxManager.create({ connectionConfig: connection() });
    try {
      const { items } = await manager.listSandboxInfos({ metadata });
      assert.ok(items.some(({ id }) => id === box().id));
      const { expiresAt } = await box().renew(1200);
      assert.ok(new Date(expiresAt) > new Date(Date.now() + 1_100_000));
      assert.ok(await box().isHealthy());
    } finally {
      await manager.close();
    }
  });
});

test("a wrong key is refused", async () => {
  const manager = SandboxManager.create({ connectionConfig: connection({ apiKey: "wrong" }) });
  await assert.rejects(manager.listSandboxInfos(), (error) => error.statusCode === 401);
  await manager.close();
});
