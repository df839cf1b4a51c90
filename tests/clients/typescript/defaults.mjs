// node defaults.mjs MODULE: only what is absent has a default, and what is none of what is meant is refused.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const { Client, InvalidArgument, RewardSender } = await import(pathToFileURL(process.argv[2]));
const sent = [];
const fetch = async (url, { body }) => {
  sent.push(...JSON.parse(body).rewards.map((each) => each.value));
  return new Response(JSON.stringify({ accepted: 1, duplicate: 0, rejected: [] }));
};
const client = new Client("http://127.0.0.1:1", { fetch, retry: { attempts: undefined } });
const words = /must be (an object, such as|a list|a finite number|at least 1)/;
const refused = (act) => assert.rejects(async () => act(), (error) => error instanceof InvalidArgument && words.test(error.message));

for (const value of [0, -0, 1, 0.5, undefined]) await client.reward("d", { value });
await client.reward("d");
assert.deepEqual(sent, [0, 0, 1, 0.5, 1, 1]);

sent.length = 0;
for (const value of [null, "", "0", false, true, NaN, Infinity, [], {}]) {
  await refused(() => client.reward("d", { value }));
  await refused(() => client.rewardBatch([{ decision: "d", value }]));
}
for (const options of [0, 1, 0.5, "", "a", null, false, true, NaN, []]) {
  await refused(() => client.reward("d", options));
  await refused(() => client.choose("b", options));
  await refused(() => client.dryRun("b", options));
  await refused(() => client.rewardBatch([], options));
  await refused(() => new Client("http://127.0.0.1:1", options));
  await refused(() => new RewardSender(client, options));
}
for (const list of ["token", 5, null, undefined, {}]) {
  await refused(() => client.activate(list));
  await refused(() => client.rewardBatch(list));
}
await refused(() => client.rewardBatch([null]));
for (const options of [{ batch: 0 }, { batch: -1 }, { batch: NaN }, { buffer: 0 }, { batch: 10, buffer: 9 }, { batch: null }]) {
  await refused(() => new RewardSender(client, { keep: null, ...options }));
}
const rewards = new RewardSender(client, { keep: null, everyMs: 0, batch: 1 });
for (const options of [0, null, "", { value: null }, { value: "1" }]) await refused(() => rewards.add("d", options));
assert.deepEqual(sent, []);
rewards.add("d", { value: 0 });
await rewards.close();
assert.deepEqual(sent, [0]);
const secret = await client.reward("d", "sl_s3cret").catch((error) => error.message);
assert(!secret.includes("s3cret"));
