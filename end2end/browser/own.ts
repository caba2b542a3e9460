// Servers of a test's own, which it fills, stops and starts again. With other servers under test, whose
// program is not known, these tests are left out.

import { type Api, test as base } from "./console";
import { canStart, type Kind, OwnServer } from "./server";

export { OwnServer };

/** Tests of which each has a server of this kind. */
export function testsWithOwn(kind: () => Promise<Kind>) {
  return base.extend<{ own: OwnServer; api: Api }>({
    own: async ({}, use) => {
      base.skip(!canStart, "OSB_SERVER names no program");
      const made = await kind();
      try {
        const own = await OwnServer.make(made);
        try {
          await use(own);
        } finally {
          await own.stop();
        }
      } finally {
        made.after?.();
      }
    },
    baseURL: async ({ own }, use) => use(own.url),
  });
}
