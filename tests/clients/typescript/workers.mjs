// node workers.mjs MODULE: what a worker of a page may not do, it does not; what it lacks is named.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const { Client, InvalidArgument, visitorPass } = await import(pathToFileURL(process.argv[2]));

// A service lets pages of other origins send POST alone, and their workers likewise.
globalThis.WorkerGlobalScope = class {};
const sent = [];
const fetch = async (url, { method, body }) => {
  sent.push([method, new URL(url).pathname, JSON.parse(body).event_id !== undefined]);
  if (method !== "POST") throw new TypeError("Failed to fetch");
  return new Response(JSON.stringify({ decision: "d", arms: [], policy: "sub_ts", learner_version: 0, catalogue_version: 1, exact: true }));
};
const client = new Client("http://127.0.0.1:1", { fetch, retry: { attempts: 1 } });
await client.choose("b");
assert.deepEqual(sent, [["POST", "/v1/bandits/b/choose", true]]);

// Without https a page has no crypto.subtle.
Object.defineProperty(globalThis, "crypto", { value: { getRandomValues: crypto.getRandomValues.bind(crypto) } });
await assert.rejects(visitorPass("sl_key", { visitor: "ann" }), (error) => error instanceof InvalidArgument && /on your server/.test(error.message));
await client.choose("b");
