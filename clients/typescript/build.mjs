// node build.mjs [folder]: the modules without their types, and the declarations beside them. Node 22.18 or newer.

import { copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

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
  const plain = stripTypeScriptTypes(source)
    .replace(/from "\.\/(\w+)\.ts"/g, 'from "./$1.js"')
    .replace(/[ \t]+$/gm, "")
    .replace(/^[ \t]*(\/\/.*|\/\*\*.*\*\/)\n/gm, "") // comments on lines of their own: declarations have them
    .replace(/\n{3,}/g, "\n\n");
  writeFileSync(join(out, name.replace(/\.ts$/, ".js")), plain);
}
copyFileSync(join(here, "index.d.ts"), join(out, "index.d.ts"));
