import { hydrated, logIn, test, expect } from "./console";
test("zz shots", async ({ page, api }) => {
  test.setTimeout(120000);
  const { id } = await api.create(["bash", "-c", `cd /root; mkdir -p src/deep/er data docs; printf 'import os\n\ndef size(path):\n    return os.stat(path).st_size\n' > src/size.py; for i in 1 2 3; do echo "def f$i(path): return path" > src/deep/f$i.py; done; printf 'name,size,note\na,1,"x, y"\nbb,22,\n' > data/list.csv; printf '# Title\n\nSome *text* and a [link](https://example.org).\n\n- a\n- b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\n~~~py\nprint(1)\n~~~\n' > docs/README.md; touch ready; exec tail -f /dev/null`]);
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    for (const width of [1440, 390]) {
      await page.setViewportSize({ width, height: 900 });
      const shot = async (name: string, query: string) => {
        await page.goto(`/console/sandboxes/${id}/files?${query}`);
        await hydrated(page);
        await page.waitForTimeout(600);
        await page.screenshot({ path: `/tmp/osb/shots-files/${name}-${scheme}-${width}.png`, fullPage: true });
      };
      if (scheme === "light" && width === 1440) await logIn(page, `/console/sandboxes/${id}/files?path=/root`);
      await shot("folder", "path=/root/src/deep");
      await shot("find", "path=/root&text=path&case=on");
      await shot("line", "path=/root/src/size.py&line=3");
      await shot("csv", "path=/root/data/list.csv");
      await shot("md", "path=/root/docs/README.md");
    }
  }
  expect(1).toBe(1);
});
