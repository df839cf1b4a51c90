// node passes.mjs MODULE URL KEY: a pass for one visitor, renewed when it has expired, and whose rewards are sent by whom.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const { Client, Forbidden, InvalidArgument, PassExpired, RewardRejected, RewardSender, visitorPass } = await import(pathToFileURL(process.argv[2]));
const [url, key] = process.argv.slice(3);
const retry = { firstWaitMs: 1 };

async function old(visitor) {
  const now = Date.now;
  Date.now = () => now() - 7_200_000;
  try {
    return await visitorPass(key, { visitor });
  } finally {
    Date.now = now;
  }
}

// A pass is for its visitor alone.
const ann = new Client(url, { key: await visitorPass(key, { visitor: "ann", expiresInS: 60, bandits: ["own"] }), retry });
const bob = new Client(url, { key: await visitorPass(key, { visitor: "bob" }), retry });
assert.deepEqual([ann.visitor, await bob.identify(), new Client(url).visitor], ["ann", "bob", null]);
const choice = await ann.choose("own");
await assert.rejects(ann.choose("own", { key: "bob" }), Forbidden);
await assert.rejects(bob.reward(choice.decision), (error) => error instanceof RewardRejected && error.code === "not_yours");
assert.equal((await ann.reward(choice.decision)).accepted, 1);
await assert.rejects(new Client(url, { key: await old("ann"), retry }).choose("own"), PassExpired);

// What gets a pass is asked once at first, and once again when it has expired, however many calls there are.
let asked = 0;
const renewing = new Client(url, { key: async () => (asked++ ? visitorPass(key, { visitor: "ann" }) : old("ann")), retry });
assert.equal(renewing.visitor, undefined);
const choices = await Promise.all(Array.from({ length: 5 }, () => renewing.choose("own")));
assert.deepEqual([choices.length, asked, renewing.visitor], [5, 2, "ann"]);
const stale = new Client(url, { key: () => old("ann"), retry });
await assert.rejects(stale.choose("own"), PassExpired);
let next = 0;
const another = new Client(url, { key: async () => (next++ ? visitorPass(key, { visitor: "eve" }) : old("ann")), retry });
await assert.rejects(another.choose("own"), InvalidArgument);
const failing = new Client(url, { key: () => Promise.reject(new Error("no session")), retry });
await assert.rejects(failing.choose("own"), /no session/);

// Rewards of one visitor wait for that visitor, whoever comes meanwhile.
const items = new Map();
// What keeps them may be listed, as localStorage, or not.
for (const more of [{}, { key: (index) => [...items.keys()][index] }]) {
const keep = { ...more, get length() { return items.size; }, getItem: (name) => items.get(name) ?? null, setItem: (name, text) => items.set(name, text), removeItem: (name) => items.delete(name) };
const away = new Client(url, { key: await visitorPass(key, { visitor: "ann" }), fetch: () => Promise.reject(new TypeError("away")), retry: { attempts: 1 } });
const left = new RewardSender(away, { keep, everyMs: 1e6 });
left.add(choices[0].decision);
await assert.rejects(left.close());
const rejected = [];
const others = new RewardSender(bob, { keep, onRejected: (_, code) => rejected.push(code) });
assert.equal(others.waiting, 0);
others.add((await bob.choose("own")).decision);
await others.close();
assert.equal(items.size, 1);
const later = new RewardSender(new Client(url, { key: () => visitorPass(key, { visitor: "ann" }), retry }), { keep, onRejected: (_, code) => rejected.push(code) });
later.add(choices[1].decision);
await later.flush();
await later.close();
assert.deepEqual([later.waiting, items.size, rejected], [0, 0, []]);
}

for (const options of [{ visitor: "" }, { visitor: "a b" }, { visitor: "a", expiresInS: 0 }, { visitor: "a", expiresInS: 1.5 }, { visitor: "a", bandits: ["/"] }]) {
  await assert.rejects(visitorPass(key, options), InvalidArgument);
}
await assert.rejects(visitorPass(ann.url, {}), InvalidArgument);
await assert.rejects(visitorPass("slv_x", { visitor: "a" }), InvalidArgument);
console.log("done");
