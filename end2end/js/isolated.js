// Isolated sessions with the official JavaScript SDK, in sandboxes that allow them.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { SandboxApiException } from "@alibaba-group/opensandbox";

import { onEveryRoute, texts } from "./sandbox.js";

const settings = { extensions: { "bootstrap.execd.isolation": "enable" } };

function tests(box) {
  const within = (request, work) => box().isolation.withSession(request, work);
  const workspace = (name, mode) => ({ workspace: { path: `/data/${name}`, mode } });

  test("capabilities are reported", async () => {
    const capabilities = await box().isolation.capabilities();
    assert.deepEqual(
      [capabilities.available, capabilities.setpriv_available, capabilities.diff_supported, capabilities.message],
      [true, true, true, undefined],
    );
  });

  test("output arrives by lines, with the exit code", async () => {
    await within(workspace("lines"), async (session) => {
      const seen = [];
      const run = await session.run("echo one; echo two >&2; echo $COLOUR; exit 3", {
        envs: { COLOUR: "grün" },
      }, { onStdout: ({ text }) => void seen.push(text) });
      assert.deepEqual(texts(run.logs.stdout), ["one", "grün"]);
      assert.deepEqual(texts(run.logs.stderr), ["two"]);
      assert.deepEqual(seen, ["one", "grün"]);
      assert.deepEqual([run.exitCode, run.error.name], [3, "ExitError"]);
      const good = await session.run("pwd; hostname; echo [$COLOUR]");
      assert.deepEqual(texts(good.logs.stdout), ["/data/lines", "sandbox", "[]"]);
      assert.equal(good.exitCode, 0);
    });
  });

  test("the state of the shell outlives runs and timeouts", async () => {
    await within(workspace("state"), async (session) => {
      await session.run("cd /usr; KEPT='a b'; greet() { echo \"hello $1\"; }");
      const late = await session.run("KEPT=lost; sleep 600", { timeout_seconds: 1 });
      assert.deepEqual([late.exitCode, late.error.name], [null, "TimeoutError"]);
      const again = await box().isolation.attach(session.sessionId);
      const run = await again.run("pwd; echo $KEPT; greet you");
      assert.deepEqual(texts(run.logs.stdout), ["/usr", "a b", "hello you"]);
      assert.equal(again.info.workspace.mode, "overlay");
    });
  });

  test("files are the same from inside and outside, and not the sandbox's", async () => {
    await box().files.writeFiles([{ path: "/data/files/old.txt", data: "old" }]);
    await within(workspace("files"), async (session) => {
      const { files } = session;
      const bytes = new Uint8Array(3_000_000).map((_, n) => n % 251);
      await files.createDirectories([{ path: "/data/files/made", mode: 755 }]);
      await files.writeFiles([
        { path: "/data/files/made/a.txt", data: "first\nsecond\n", mode: 640 },
        { path: "/data/files/made/b.bin", data: bytes },
      ]);
      const run = await session.run("echo new > old.txt; cat made/a.txt; wc -c < made/b.bin");
      assert.deepEqual(texts(run.logs.stdout), ["first", "second", "3000000"]);
      assert.equal(await files.readFile("/data/files/old.txt"), "new\n");
      assert.equal(await files.readFile("/data/files/made/a.txt", { offset: 2, limit: 1 }), "second");
      assert.deepEqual(await files.readBytes("/data/files/made/b.bin"), bytes);
      const [replaced] = await files.replaceContentsDetailed([
        { path: "/data/files/made/a.txt", oldContent: "second", newContent: "2nd" },
      ]);
      assert.equal(replaced.replacedCount, 1);
      await files.moveFiles([{ src: "/data/files/made/a.txt", dest: "/data/files/c.txt" }]);
      const found = await files.search({ path: "/data/files", pattern: "*.txt" });
      assert.deepEqual(
        found.map(({ path }) => path).sort(),
        ["/data/files/c.txt", "/data/files/old.txt"],
      );
      const listed = await files.listDirectory({ path: "/data/files/made" });
      assert.deepEqual(listed.map(({ path }) => path), ["/data/files/made/b.bin"]);
      await files.deleteDirectories(["/data/files/made"]);
      await assert.rejects(files.readFile("/data/files/made/b.bin"), SandboxApiException);
    });
    assert.equal(await box().files.readFile("/data/files/old.txt"), "old");
    const { logs } = await box().commands.run("ls /data/files");
    assert.deepEqual(texts(logs.stdout), ["old.txt"]);
  });

  test("what is written to a bind reaches the sandbox", async () => {
    const run = await box().isolation.runOnce("echo through > there; exit 4", "/data/bind", {
      workspaceMode: "rw",
    });
    assert.equal(run.exitCode, 4);
    assert.equal(await box().files.readFile("/data/bind/there"), "through\n");
  });

  test("sessions are listed until they are deleted, and bad ones refused", async () => {
    const { isolation } = box();
    const session = await isolation.create({ ...workspace("listed"), idle_timeout_seconds: 300 });
    const listed = (await isolation.list()).filter(({ session_id: id }) => id === session.sessionId);
    assert.deepEqual(listed.map(({ status }) => status), ["active"]);
    assert.equal((await session.get()).idle_timeout_seconds, 300);
    await session.delete();
    assert.deepEqual(await isolation.list(), []);
    await assert.rejects(session.get(), /404/);
    await assert.rejects(session.run("true"));
    await assert.rejects(isolation.create(workspace("../etc")), /400/);
    await assert.rejects(isolation.create(workspace("x", "w")), /400/);
  });
}

onEveryRoute(describe, before, after, tests, settings, "isolated sessions, ");
