// node session.mjs MODULE URL: the first session of a user, against a real service.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const { Client, NotFound, RewardRejected, RewardSender } = await import(pathToFileURL(process.argv[2]));
const client = new Client(process.argv[3]);
const choice = await client.choose("home", { key: "user-42", k: 2, filter: { id: { $exists: false } } });
assert.equal(choice.arms.length, 2);
assert.deepEqual(await client.reward(choice.decision, { arm: choice.arms[0].id, wait: true }), { accepted: 1, duplicate: 0, rejected: [] });
assert.deepEqual(await client.reward(choice.decision, { arm: choice.arms[0].id }), { accepted: 0, duplicate: 1, rejected: [] });
const later = await client.choose("home", { key: "user-42", activate: false });
await assert.rejects(client.reward(later.decision), (error) => error instanceof RewardRejected && error.code === "not_activated");
assert.equal((await client.activate([later.decision])).activated, 1);
const sender = new RewardSender(client);
sender.add(later.decision, { value: 0.5 });
assert.equal(sender.waiting, 1);
await sender.close();
assert.equal(sender.waiting, 0);
const bought = await client.choose("home", { key: "user-42", k: 2, event_id: "order-1" });
const order = { bandit: "home", event_id: "order-1", key: "user-42" };
assert.equal((await client.reward(order, { wait: true })).accepted, 1);
assert.equal((await client.reward(bought.decision, { arm: bought.arms[0].id })).duplicate, 1);
assert.equal((await client.activate([order])).duplicate, 1);
const events = new RewardSender(client);
events.add(order, { arm: bought.arms[1].id });
await events.close();
await assert.rejects(client.reward({ ...order, key: "user-43" }), (error) => error.code === "unknown_event");
const rows = await client.choosePage([{ bandit: "home", key: "ann" }, { bandit: "home", key: "ann" }], { distinct: true });
assert.deepEqual(rows.map((row) => row.arms[0].id).sort(), ["a", "b"]);
const each = await client.choosePage([{ bandit: "none" }, { bandit: "home", key: "ann" }], { partial: true });
assert(each[0] instanceof NotFound && each[1].arms.length === 1);
await assert.rejects(client.choosePage([{ bandit: "none" }]), NotFound);
await assert.rejects(client.choose("none"), NotFound);
await assert.rejects(client.choose("home"), { name: "Invalid", status: 422 });
console.log("done");
