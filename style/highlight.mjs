// Colours the text of a file by its language, without touching the page's elements: the CSS Custom
// Highlight API paints ranges of the text, so what is in a file stays text. Browsers without it show
// the text plain. build.mjs bundles this with CodeMirror's stream parsers.

import { c, cpp, csharp, dart, java, kotlin, scala } from "@codemirror/legacy-modes/mode/clike";
import { cmake } from "@codemirror/legacy-modes/mode/cmake";
import { css, less, sCSS } from "@codemirror/legacy-modes/mode/css";
import { diff } from "@codemirror/legacy-modes/mode/diff";
import { dockerFile } from "@codemirror/legacy-modes/mode/dockerfile";
import { go } from "@codemirror/legacy-modes/mode/go";
import { javascript, json, typescript } from "@codemirror/legacy-modes/mode/javascript";
import { julia } from "@codemirror/legacy-modes/mode/julia";
import { lua } from "@codemirror/legacy-modes/mode/lua";
import { nginx } from "@codemirror/legacy-modes/mode/nginx";
import { perl } from "@codemirror/legacy-modes/mode/perl";
import { properties } from "@codemirror/legacy-modes/mode/properties";
import { protobuf } from "@codemirror/legacy-modes/mode/protobuf";
import { python } from "@codemirror/legacy-modes/mode/python";
import { r } from "@codemirror/legacy-modes/mode/r";
import { ruby } from "@codemirror/legacy-modes/mode/ruby";
import { rust } from "@codemirror/legacy-modes/mode/rust";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { standardSQL } from "@codemirror/legacy-modes/mode/sql";
import { swift } from "@codemirror/legacy-modes/mode/swift";
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { html, xml } from "@codemirror/legacy-modes/mode/xml";
import { yaml } from "@codemirror/legacy-modes/mode/yaml";
import { StringStream } from "@codemirror/streamparser";

/** A language and the endings of its files. */
const ENDINGS = [
  [c, "c h"],
  [cpp, "cc cpp cxx hh hpp hxx ino cu"],
  [csharp, "cs"],
  [css, "css"],
  [cmake, "cmake"],
  [dart, "dart"],
  [diff, "diff patch"],
  [dockerFile, "dockerfile"],
  [go, "go"],
  [html, "htm html vue svelte"],
  [java, "java"],
  [javascript, "cjs js jsx mjs"],
  [json, "ipynb json json5 jsonl map ndjson"],
  [julia, "jl"],
  [kotlin, "kt kts"],
  [less, "less"],
  [lua, "lua"],
  [nginx, "nginx"],
  [perl, "pl pm"],
  [properties, "cfg conf env ini properties"],
  [protobuf, "proto"],
  [python, "py pyi pyw"],
  [r, "r"],
  [ruby, "gemspec rake rb"],
  [rust, "rs"],
  [scala, "sc scala"],
  [sCSS, "scss"],
  [shell, "bash bashrc bash_profile ksh profile sh zsh zshrc"],
  [standardSQL, "sql"],
  [swift, "swift"],
  [toml, "toml"],
  [typescript, "cts mts ts tsx"],
  [xml, "svg xml xsd xsl"],
  [yaml, "yaml yml"],
];
const BY_ENDING = new Map(
  ENDINGS.flatMap(([language, endings]) => endings.split(" ").map((ending) => [ending, language])),
);
/** Languages of whole file names. */
const BY_NAME = new Map([
  ["cargo.lock", toml],
  ["cmakelists.txt", cmake],
  ["containerfile", dockerFile],
  ["gemfile", ruby],
  ["makefile", shell],
  ["nginx.conf", nginx],
  ["poetry.lock", toml],
  ["rakefile", ruby],
  ["uv.lock", toml],
]);
/** What the first line of a script names. */
const PROGRAMS = [
  [/\bpython[\d.]*\b/, python],
  [/\b(?:ba|da|k|z)?sh\b/, shell],
  [/\b(?:node|deno|bun)\b/, javascript],
  [/\bruby\b/, ruby],
  [/\bperl\b/, perl],
  [/\blua\b/, lua],
  [/\bRscript\b/, r],
];

/** Words in the names of a parser's tokens, and the highlight that paints them (style/files.css). */
const PAINTED = new Map(
  [
    ["comment", "comment"],
    ["keyword", "keyword controlKeyword definitionKeyword moduleKeyword operatorKeyword modifier tagName"],
    ["text", "string string2 character regexp link url"],
    ["value", "number atom bool null literal unit color"],
    ["name", "def propertyName attributeName typeName className namespace heading standard special"],
    ["added", "inserted"],
    ["removed", "deleted"],
  ].flatMap(([paint, words]) => words.split(" ").map((word) => [word, paint])),
);

/** Characters that are parsed without a pause: other work of the page must not wait for long. */
const TURN = 20_000;
/** Lines longer than this are data rather than code. */
const LONGEST = 5_000;

/** What is painted now; another text takes its place. */
let current = 0;

/** The language of a file, if it has one. */
function language(name, text) {
  const lower = name.toLowerCase();
  const ending = lower.slice(lower.lastIndexOf(".") + 1);
  const known = BY_NAME.get(lower) ?? BY_ENDING.get(ending);
  if (known || !text.startsWith("#!")) return known;
  const first = text.slice(0, 200).split("\n", 1)[0];
  return PROGRAMS.find(([program]) => program.test(first))?.[1];
}

/** The highlight of a token. */
function paint(style) {
  for (const word of style.split(/[ .]/)) {
    const paint = PAINTED.get(word);
    if (paint) return paint;
  }
}

const pause = () => new Promise((resume) => setTimeout(resume));

/** Paints the text in `element`, that of a file with this name, in place of what was painted before. */
export async function highlight(element, name) {
  const turn = ++current;
  if (!globalThis.CSS?.highlights) return;
  for (const paint of new Set(PAINTED.values())) CSS.highlights.delete(`code-${paint}`);
  const node = element.firstChild;
  if (node?.nodeType !== Node.TEXT_NODE) return;
  const text = node.data;
  const parser = language(name, text);
  if (!parser) return;
  const highlights = new Map();
  for (const paint of new Set(PAINTED.values())) {
    const ranges = new Highlight();
    highlights.set(paint, ranges);
    CSS.highlights.set(`code-${paint}`, ranges);
  }
  const state = parser.startState?.(2) ?? {};
  let [at, parsed] = [0, 0];
  for (const line of text.split("\n")) {
    if (line.length > LONGEST) return;
    parseLine(parser, state, line, (from, to, paint) => {
      const [startOffset, endOffset] = [at + from, at + to];
      const range = { startContainer: node, startOffset, endContainer: node, endOffset };
      highlights.get(paint).add(new StaticRange(range));
    });
    at += line.length + 1;
    parsed += line.length + 1;
    if (parsed > TURN) {
      parsed = 0;
      await pause();
      // Another file is shown, or the text was replaced.
      if (turn !== current || !node.isConnected || node.data !== text) return;
    }
  }
}

function parseLine(parser, state, line, add) {
  if (line === "") {
    parser.blankLine?.(state, 2);
    return;
  }
  const stream = new StringStream(line, 4, 2);
  // A token may be empty as long as it changes the state; a parser that does not go on is left.
  for (let empty = 0; !stream.eol() && empty < 10; ) {
    stream.start = stream.pos;
    const style = parser.token(stream, state);
    empty = stream.pos === stream.start ? empty + 1 : 0;
    const painted = style && stream.pos > stream.start && paint(style);
    if (painted) add(stream.start, stream.pos, painted);
  }
}
