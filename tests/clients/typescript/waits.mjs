// node waits.mjs MODULE: a service that is being started, which takes 6 s, is waited for, whatever is drawn.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const { Client } = await import(pathToFileURL(process.argv[2]));
let waited = 0;
globalThis.setTimeout = (done, ms) => {
  waited += ms;
  queueMicrotask(done);
};
AbortSignal.timeout = () => new AbortController().signal;
const refused = new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } });
const client = new Client("http://127.0.0.1:1", { fetch: () => Promise.reject(refused) });
for (const [drawn, least, most] of [[0, 6_000, 7_000], [0.999, 12_000, 15_000]]) {
  Math.random = () => drawn;
  waited = 0;
  await assert.rejects(client.reward("d"));
  assert(least < waited && waited < most, `${waited}`);
}
