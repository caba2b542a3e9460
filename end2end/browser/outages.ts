// Takes the server away from pages, and gives it back.

import type { Page } from "@playwright/test";

/** Words of a page that asked for something meanwhile. */
export const AWAY = "The server cannot be reached. Retrying …";

/**
 * Lets a page lose the server and find it again: every socket and every call of a function.
 * Pages that are rendered whole are not affected.
 */
export async function outages(page: Page): Promise<{ begin(): Promise<void>; end(): void }> {
  let away = false;
  const open = new Set<{ close(): Promise<void> }>();
  await page.routeWebSocket(/\/console\/(live|terminal\/[^/]+|run\/[^/]+|tunnel\/.+)(\?.*)?$/, (socket) => {
    if (away) {
      void socket.close();
      return;
    }
    socket.connectToServer();
    open.add(socket);
  });
  await page.route("**/console/fn/**", (route) => (away ? route.abort("connectionrefused") : route.fallback()));
  return {
    async begin() {
      away = true;
      await Promise.all([...open].map((socket) => socket.close()));
      open.clear();
    },
    end() {
      away = false;
    },
  };
}
