// Builds everything that the console's pages load besides the wasm: `node style/build.mjs [site]`.
//
// Writes into `target/site` (or the given folder), next to the wasm-bindgen output in `pkg/`:
//   console.css           style/main.css with its imports, minified
//   icons.svg             a sprite of the icons named in style/icons.txt
//   vendor/*.mjs          xterm and its addons as published, the version in the name
//   vendor/novnc-*.mjs    noVNC in one file; its licence beside it
//   vendor/highlight.mjs  style/highlight.mjs with CodeMirror's stream parsers; their licence beside it
//   vendor/geist.woff2    the typeface, for Latin letters; its licence beside it
//   favicon.svg, …        everything in public/
// server/build.rs embeds that folder.

import { build } from "esbuild";
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const site = resolve(process.argv[2] ?? join(root, "target/site"));
const modules = join(root, "node_modules");
const { dependencies } = createRequire(import.meta.url)("../package.json");

/** Files taken from packages unchanged. The version is part of the name; app/src/terminal/bindings.rs has it. */
const vendored = [
  ["@xterm/xterm", "lib/xterm.mjs", "xterm"],
  ["@xterm/addon-fit", "lib/addon-fit.mjs", "xterm-addon-fit"],
  ["@xterm/addon-search", "lib/addon-search.mjs", "xterm-addon-search"],
  ["@xterm/addon-web-links", "lib/addon-web-links.mjs", "xterm-addon-web-links"],
  ["@xterm/addon-unicode11", "lib/addon-unicode11.mjs", "xterm-addon-unicode11"],
];

async function vendor() {
  for (const [name, file, as] of vendored) {
    const code = await readFile(join(modules, name, file), "utf8");
    // Source maps are not served; a reference to one would be a failed request in developer tools.
    const target = join(site, "vendor", `${as}-${dependencies[name]}.mjs`);
    await writeFile(target, code.replace(/\n\/\/# sourceMappingURL=.*\s*$/, "\n"));
  }
}

/** noVNC is many modules, and one file here. It logs nothing: pages say why there is no desktop. */
async function novnc() {
  const contents = `
    import { initLogging } from "./util/logging.js";
    initLogging("none");
    export { default } from "./rfb.js";`;
  await build({
    stdin: { contents, resolveDir: join(modules, "@novnc/novnc/core") },
    outfile: join(site, "vendor", `novnc-${dependencies["@novnc/novnc"]}.mjs`),
    bundle: true,
    format: "esm",
    minify: true,
    target: ["chrome123", "firefox121", "safari17.5"],
    banner: { js: "/* noVNC, MPL-2.0: novnc.LICENSE.txt. Its source is in the npm package @novnc/novnc. */" },
    logLevel: "warning",
  });
  await cp(join(modules, "@novnc/novnc/LICENSE.txt"), join(site, "vendor/novnc.LICENSE.txt"));
}

async function highlighting() {
  await build({
    entryPoints: [join(root, "style/highlight.mjs")],
    outfile: join(site, "vendor/highlight.mjs"),
    bundle: true,
    format: "esm",
    minify: true,
    target: ["chrome123", "firefox121", "safari17.5"],
    banner: { js: "/* With CodeMirror's stream parsers, MIT: highlight.LICENSE.txt */" },
    logLevel: "warning",
  });
  const licence = join(modules, "@codemirror/legacy-modes/LICENSE");
  await cp(licence, join(site, "vendor/highlight.LICENSE.txt"));
}

async function typeface() {
  const of = join(modules, "@fontsource-variable/geist");
  await cp(join(of, "files/geist-latin-wght-normal.woff2"), join(site, "vendor/geist.woff2"));
  await cp(join(of, "LICENSE"), join(site, "vendor/geist.LICENSE.txt"));
}

async function icons() {
  const list = await readFile(join(root, "style/icons.txt"), "utf8");
  const names = list.split("\n").filter((line) => line && !line.startsWith("#"));
  const symbols = names.map(async (name) => {
    const svg = await readFile(join(modules, "lucide-static/icons", `${name}.svg`), "utf8");
    const shapes = svg.replace(/^[^]*?<svg[^>]*>|<\/svg>[^]*$/g, "").replace(/\s+/g, " ").trim();
    return `<symbol id="${name}" viewBox="0 0 24 24">${shapes}</symbol>`;
  });
  const sprite = `<svg xmlns="http://www.w3.org/2000/svg">${(await Promise.all(symbols)).join("")}</svg>\n`;
  await writeFile(join(site, "icons.svg"), sprite);
}

function styles() {
  return build({
    entryPoints: [join(root, "style/main.css")],
    outfile: join(site, "console.css"),
    bundle: true,
    minify: true,
    // Written by typeface().
    external: ["*.woff2"],
    target: ["chrome123", "firefox121", "safari17.5"],
    logLevel: "warning",
  });
}

await mkdir(join(site, "vendor"), { recursive: true });
const assets = cp(join(root, "public"), site, { recursive: true });
await Promise.all([vendor(), novnc(), highlighting(), typeface(), icons(), styles(), assets]);
