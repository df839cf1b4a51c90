// node batches.mjs MODULE: long lists go in several calls, each within the limits of the service.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const { Client } = await import(pathToFileURL(process.argv[2]));
const sent = [];
const fetch = async (url, { body }) => {
  assert(body.length < 4 << 20);
  const items = Object.values(JSON.parse(body))[0];
  sent.push(items.length);
  const rejected = [{ index: items.length - 1, code: "expired" }];
  return new Response(JSON.stringify({ accepted: items.length - 1, activated: items.length - 1, duplicate: 0, rejected }));
};
const client = new Client("http://127.0.0.1:1", { fetch });

const many = Array.from({ length: 2500 }, (_, i) => ({ decision: `token-${i}`, value: 1 }));
const receipt = await client.rewardBatch(many);
assert.deepEqual(sent, [1000, 1000, 500]);
assert.equal(receipt.accepted, 2497);
assert.deepEqual(receipt.rejected.map((each) => each.index), [999, 1999, 2499]);

sent.length = 0;
const long = await client.activate(Array.from({ length: 20 }, () => "x".repeat(150_000)));
assert.deepEqual(sent, [6, 6, 6, 2]);
assert.deepEqual(long.rejected.map((each) => each.index), [5, 11, 17, 19]);

sent.length = 0;
await client.activate(["x".repeat(390_000), "y"]);
await client.rewardBatch([]);
assert.deepEqual(sent, [2]);
