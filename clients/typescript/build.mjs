// node build.mjs [folder]: the modules without their types, and the declarations beside them.

import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import * as nodeModule from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

if (!nodeModule.stripTypeScriptTypes) {
  // Node 20 can use the package but cannot strip types: npm brings a Node for the build that can.
  const words = ["--yes", "node@24", fileURLToPath(import.meta.url), ...process.argv.slice(2)];
  const { status } = spawnSync("npx", words, { stdio: "inherit", shell: process.platform === "win32" });
  if (status !== 0) console.error("The build needs Node 22.13 or newer, or a network to get it by npx.");
  process.exit(status ?? 1);
}

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(here, "dist"));
mkdirSync(out, { recursive: true });
for (const name of readdirSync(join(here, "src"))) {
  const source = readFileSync(join(here, "src", name), "utf8");
  if (name === "types.ts") {
    writeFileSync(join(out, "types.d.ts"), source);
    continue;
  }
  if (!name.endsWith(".ts") || name.endsWith(".d.ts")) continue;
  const plain = nodeModule
    .stripTypeScriptTypes(source)
    .replace(/from "\.\/(\w+)\.ts"/g, 'from "./$1.js"')
    .replace(/[ \t]+$/gm, "")
    .replace(/^[ \t]*(\/\/.*|\/\*\*.*\*\/)\n/gm, "") // comments on lines of their own: declarations have them
    .replace(/\n{3,}/g, "\n\n");
  writeFileSync(join(out, name.replace(/\.ts$/, ".js")), plain);
}
copyFileSync(join(here, "index.d.ts"), join(out, "index.d.ts"));
