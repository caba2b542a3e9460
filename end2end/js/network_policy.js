// Network policies with the official JavaScript SDK: on a create, and changed later.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";

import { Sandbox, SandboxApiException } from "@alibaba-group/opensandbox";

import { connection, onEveryRoute, patient, texts } from "./sandbox.js";

const networkPolicy = { defaultAction: "deny", egress: [{ action: "allow", target: "a.example" }] };

// Prints the address of this machine, as a sandbox on it sees it: its gateway.
const GATEWAY =
  `python3 -c 'import socket; ` +
  `rows = [line.split() for line in open("/proc/net/route")][1:]; ` +
  `gateways = [row[2] for row in rows if row[1] == "00000000"]; ` +
  `print(socket.inet_ntoa(bytes.fromhex(gateways[0])[::-1]))'`;

const output = async (box, command) => texts((await box.commands.run(command)).logs.stdout).join("");

function tests(box) {
  let server;
  let address;
  // 200 if this machine answers, and 000 if there is no connection.
  const reached = () =>
    output(
      box(),
      `curl -s -m 10 -o /dev/null -w '%{http_code}' http://${address}:${server.address().port}/`,
    );

  before(async () => {
    server = createServer((_, response) => response.end("ok"));
    await new Promise((listening) => server.listen(0, "0.0.0.0", listening));
    address = await output(box(), GATEWAY);
  });
  after(() => server?.close());

  test("it is given, read and changed", async () => {
    assert.deepEqual(await box().getEgressPolicy(), networkPolicy);
    assert.equal(await reached(), "000");

    const rules = [
      { action: "allow", target: address },
      { action: "deny", target: "a.example" },
    ];
    await box().patchEgressRules(rules);
    assert.deepEqual((await box().getEgressPolicy()).egress, rules);
    assert.equal(await reached(), "200");

    await box().deleteEgressRules([address, "unknown.example"]);
    const left = { defaultAction: "deny", egress: [rules[1]] };
    assert.deepEqual(await box().getEgressPolicy(), left);
    assert.equal(await reached(), "000");
  });

  test("another client changes it too", async () => {
    const { useServerProxy } = box().connectionConfig;
    const connectionConfig = connection({ useServerProxy });
    const readyTimeoutSeconds = patient(30);
    const again = await Sandbox.connect({ sandboxId: box().id, connectionConfig, readyTimeoutSeconds });
    try {
      await again.patchEgressRules([{ action: "allow", target: "b.example" }]);
    } finally {
      await again.close();
    }
    const { egress } = await box().getEgressPolicy();
    assert.ok(egress.some(({ target }) => target === "b.example"), JSON.stringify(egress));
  });

  test("a bad rule changes nothing", async () => {
    const before = await box().getEgressPolicy();
    for (const target of ["http://a.example/", "10.0.0.0/33"]) {
      const rule = { action: "allow", target };
      await assert.rejects(box().patchEgressRules([rule]), (error) => error.statusCode === 400);
    }
    assert.deepEqual(await box().getEgressPolicy(), before);
  });
}

// A server without network policies has nothing to test.
const { OPENSANDBOX_TEST_URL: url, OPENSANDBOX_TEST_API_KEY: apiKey } = process.env;
const unknown = `${url}/v1/sandboxes/00000000-0000-4000-8000-000000000000/networkpolicy`;
const { status } = await fetch(unknown, { headers: { "OPEN-SANDBOX-API-KEY": apiKey } });
const suite = status === 501 ? describe.skip : describe;

onEveryRoute(suite, before, after, tests, { networkPolicy }, "network policies, ");

onEveryRoute(describe, before, after, (box) => {
  test("a sandbox without one has none to read", async () => {
    await assert.rejects(box().getEgressPolicy(), SandboxApiException);
  });
}, {}, "no network policy, ");
