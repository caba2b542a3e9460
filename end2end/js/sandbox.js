// Sandboxes for the tests, one per route: direct, and through the server's proxy.

import { randomUUID } from "node:crypto";

import { Sandbox } from "@alibaba-group/opensandbox";

const {
  OPENSANDBOX_TEST_URL: url,
  OPENSANDBOX_TEST_API_KEY: apiKey,
  OPENSANDBOX_TEST_IMAGE: image,
  OSB_TEST_PATIENCE: factor = "1",
} = process.env;

/** Extends a deadline by the factor of this run. */
export const patient = (time) => Math.ceil(time * Math.max(1, Number(factor)));

/** Metadata of the sandboxes of this run. */
export const metadata = { suite: `js-${randomUUID().slice(0, 8)}` };

/** Ends a sandbox. */
export const end = async (box) => {
  await box?.kill();
  await box?.close();
};

export const connection = (settings = {}) => ({
  domain: new URL(url).host,
  apiKey,
  disableMetrics: true,
  requestTimeoutSeconds: patient(30),
  ...settings,
});

/**
 * Runs `tests` once per route, with a function that returns the route's sandbox. `settings` are
 * added to its create request; `about` is the prefix of the test names.
 */
export function onEveryRoute(describe, before, after, tests, settings = {}, about = "") {
  for (const useServerProxy of [false, true]) {
    describe(`${about}${useServerProxy ? "through the server" : "direct"}`, () => {
      let box;
      before(async () => {
        box = await Sandbox.create({
          image,
          resource: { cpu: "500m", memory: "256Mi" },
          timeoutSeconds: 600,
          readyTimeoutSeconds: patient(30),
          metadata,
          connectionConfig: connection({ useServerProxy }),
          ...settings,
        });
      });
      after(() => end(box));
      tests(() => box);
    });
  }
}

export const texts = (messages) => messages.map((message) => message.text);
