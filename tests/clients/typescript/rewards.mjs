// node rewards.mjs MODULE URL: rewards every decision that comes on a line of the input, through a sender.

import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { Client, RewardSender } = await import(pathToFileURL(process.argv[2]));
const client = new Client(process.argv[3], { retry: { firstWaitMs: 1 } });
const rejected = [];
const sender = new RewardSender(client, { batch: 20, everyMs: 1, onRejected: (reward, code) => rejected.push(code) });
let count = 0;
for await (const decision of createInterface({ input: process.stdin })) {
  if (sender.waiting >= 5_000) await sender.flush();
  sender.add(decision, { value: 0.5 });
  count++;
}
await sender.close();
assert.equal(sender.waiting, 0);
console.log(JSON.stringify({ count, rejected }));
