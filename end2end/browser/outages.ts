// Takes the server away from pages, and gives it back.

import type { Page } from "@playwright/test";

/** Words of a page that asked for something meanwhile. */
export const AWAY = "The server cannot be reached. Retrying …";

/** Least time in milliseconds that the server stays away. */
const LEAST = Number(process.env.OSB_OUTAGE_MS ?? 0);

/**
 * Lets a page lose the server and find it again: every socket and every call of a function.
 * Pages that are rendered whole are not affected.
 */
export async function outages(page: Page): Promise<{ begin(): Promise<void>; end(): Promise<void> }> {
  let away = false;
  let since = 0;
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
      since = Date.now();
      await Promise.all([...open].map((socket) => socket.close()));
      open.clear();
    },
    async end() {
      const rest = since + LEAST - Date.now();
      if (rest > 0) await new Promise((resolve) => setTimeout(resolve, rest));
      away = false;
    },
  };
}
