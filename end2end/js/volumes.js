// Volumes with the official JavaScript SDK: named volumes, and directories that are not allowed.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";

import { Sandbox } from "@alibaba-group/opensandbox";

import { connection, end, metadata, patient, texts } from "./sandbox.js";

const { OPENSANDBOX_TEST_IMAGE: image } = process.env;

const create = (volumes) =>
  Sandbox.create({
    image,
    resource: { cpu: "500m", memory: "256Mi" },
    timeoutSeconds: 600,
    readyTimeoutSeconds: patient(30),
    metadata,
    connectionConfig: connection({ useServerProxy: true }),
    volumes,
  });

const output = async (box, command) => texts((await box.commands.run(command)).logs.stdout);

describe("volumes", () => {
  test("a named volume is shared, and read-only where asked", async () => {
    const pvc = { claimName: `osbtest-${randomUUID()}`, deleteOnSandboxTermination: true };
    const first = await create([{ name: "data", pvc, mountPath: "/data" }]);
    try {
      assert.deepEqual(await output(first, "echo kept | tee /data/note"), ["kept"]);
      const second = await create([{ name: "data", pvc, mountPath: "/data", readOnly: true }]);
      try {
        const command = "cat /data/note; touch /data/x 2>/dev/null || echo refused";
        assert.deepEqual(await output(second, command), ["kept", "refused"]);
      } finally {
        await end(second);
      }
    } finally {
      await end(first);
    }
  });

  test("a directory that is not allowed is refused by its name", async () => {
    const volumes = [{ name: "work", host: { path: "/etc" }, mountPath: "/work" }];
    await assert.rejects(create(volumes), ({ message }) => message.includes("volumes.0.host.path"));
  });
});
