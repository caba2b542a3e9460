// Sandboxes for the tests, one per route: direct, and through the server's proxy.

import { Sandbox } from "@alibaba-group/opensandbox";

const {
  OPENSANDBOX_TEST_URL: url,
  OPENSANDBOX_TEST_API_KEY: apiKey,
  OPENSANDBOX_TEST_IMAGE: image,
} = process.env;

export const connection = (settings = {}) => ({
  domain: new URL(url).host,
  apiKey,
  disableMetrics: true,
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
          metadata: { suite: "js" },
          connectionConfig: connection({ useServerProxy }),
          ...settings,
        });
      });
      after(async () => {
        await box?.kill();
        await box?.close();
      });
      tests(() => box);
    });
  }
}

export const texts = (messages) => messages.map((message) => message.text);
