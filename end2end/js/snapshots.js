// Snapshots with the official JavaScript SDK.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { Sandbox, SandboxApiException, SandboxManager } from "@alibaba-group/opensandbox";

import { connection, metadata, patient, texts } from "./sandbox.js";

const settings = {
  resource: { cpu: "500m", memory: "256Mi" },
  timeoutSeconds: 600,
  readyTimeoutSeconds: patient(30),
  metadata,
  connectionConfig: connection(),
};

test("a snapshot is taken, found, restored and deleted", async () => {
  const manager = SandboxManager.create({ connectionConfig: connection() });
  const source = await Sandbox.create({ image: process.env.OPENSANDBOX_TEST_IMAGE, ...settings });
  let restored;
  try {
    await source.commands.run("printf kept > /var/tmp/marker");
    const accepted = await manager.createSnapshot(source.id, { name: "js" });
    assert.equal(accepted.status.state, "Creating");
    let snapshot;
    do {
      await pause(100);
      snapshot = await manager.getSnapshot(accepted.id);
    } while (snapshot.status.state === "Creating");
    assert.equal(snapshot.status.state, "Ready");
    assert.equal(snapshot.name, "js");
    assert.equal(snapshot.sandboxId, source.id);
    const { items } = await manager.listSnapshots({ sandboxId: source.id, states: ["Ready"] });
    assert.deepEqual(items.map(({ id }) => id), [snapshot.id]);

    restored = await Sandbox.create({ snapshotId: snapshot.id, ...settings });
    const info = await restored.getInfo();
    assert.equal(info.snapshotId, snapshot.id);
    assert.equal(info.image, undefined);
    const run = await restored.commands.run("cat /var/tmp/marker");
    assert.deepEqual(texts(run.logs.stdout), ["kept"]);
    await assert.rejects(manager.deleteSnapshot(snapshot.id), SandboxApiException);
    await restored.kill();
    await gone(restored);
    await manager.deleteSnapshot(snapshot.id).catch((error) => assert.equal(error.statusCode, 404));
    await assert.rejects(manager.getSnapshot(snapshot.id), (error) => error.statusCode === 404);
  } finally {
    await source.kill();
    await source.close();
    await restored?.close();
    await manager.close();
  }
});

async function gone(box) {
  for (;;) {
    try {
      await box.getInfo();
    } catch (error) {
      assert.equal(error.statusCode, 404);
      return;
    }
    await pause(100);
  }
}
