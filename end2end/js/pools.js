// Pools of the server with the official JavaScript SDK, which has no calls for pools themselves.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { Sandbox } from "@alibaba-group/opensandbox";

import { connection, end, metadata, patient, texts } from "./sandbox.js";

const {
  OPENSANDBOX_TEST_API_KEY: key,
  OPENSANDBOX_TEST_IMAGE: image,
  OPENSANDBOX_TEST_URL: url,
} = process.env;

const call = (method, path, body) =>
  fetch(`${url}/v1/pools${path}`, {
    method,
    headers: { "OPEN-SANDBOX-API-KEY": key, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });

const until = async (name, wanted) => {
  const deadline = Date.now() + patient(60_000);
  for (;;) {
    const { status } = await (await call("GET", `/${name}`)).json();
    if (Object.entries(wanted).every(([member, value]) => status[member] === value)) return;
    assert.ok(Date.now() < deadline, `${name} is ${JSON.stringify(status)}`);
    await pause(100);
  }
};

describe("pools", () => {
  test("a create gets a sandbox that waits, with its own environment", async () => {
    const name = `js-${randomUUID().slice(0, 8)}`;
    const env = [{ name: "OF_POOL", value: "yes" }];
    const limits = { cpu: "500m", memory: "256Mi" };
    const made = await call("POST", "", {
      name,
      template: { spec: { containers: [{ image, env, resources: { limits } }] } },
      capacitySpec: { bufferMin: 1, bufferMax: 1, poolMin: 0, poolMax: 2 },
    });
    assert.equal(made.status, 201);
    try {
      await until(name, { available: 1 });
      const box = await Sandbox.create({
        // The SDK asks for an image; the sandbox has that of its pool.
        image,
        extensions: { poolRef: name },
        env: { OF_CREATE: "too" },
        timeoutSeconds: 600,
        readyTimeoutSeconds: patient(30),
        metadata,
        connectionConfig: connection({ useServerProxy: true }),
      });
      try {
        const { logs } = await box.commands.run("echo $OF_POOL $OF_CREATE");
        assert.deepEqual(texts(logs.stdout), ["yes too"]);
        await until(name, { allocated: 1, available: 1 });
      } finally {
        await end(box);
      }
      await until(name, { allocated: 0 });
    } finally {
      assert.equal((await call("DELETE", `/${name}`)).status, 204);
    }
  });
});
