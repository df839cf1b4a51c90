// node cases.mjs MODULE CASES: runs the shared cases of the calls that this client has; prints what is wrong, by name.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const { Client, ShortlistError } = await import(pathToFileURL(process.argv[2]));
const cases = JSON.parse(readFileSync(process.argv[3], "utf8"));
const CALLS = { choose: "choose", dry_run: "dryRun", reward: "reward", reward_batch: "rewardBatch", activate: "activate" };
const FAILURES = {
  "never sent": () => new TypeError("fetch failed", { cause: Object.assign(new Error("no"), { code: "ECONNREFUSED" }) }),
  broken: () => new TypeError("fetch failed", { cause: Object.assign(new Error("no"), { code: "UND_ERR_SOCKET" }) }),
  silence: () => new DOMException("it took too long", "TimeoutError"),
};

function wire(exchanges) {
  const left = [...exchanges];
  const events = new Set();
  const answer = async (url, { method, headers, body }) => {
    const { pathname, searchParams } = new URL(url);
    assert(left.length, `${method} ${url} was sent`);
    const { request, answer, failure } = left.shift();
    assert.deepEqual([method, pathname], [request.method, request.path]);
    assert.deepEqual(Object.fromEntries(searchParams), request.query ?? {});
    for (const [name, value] of Object.entries(request.headers ?? {})) assert.equal(headers[name], value);
    const found = body === undefined ? undefined : JSON.parse(body);
    if (request.body?.event_id === "$event") {
      assert.match(found.event_id, /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/);
      events.add(found.event_id);
      assert.equal(events.size, 1);
      found.event_id = "$event";
    }
    found?.rewards?.forEach((item, place) => {
      if ("at" in request.body.rewards[place]) return;
      assert(Math.abs(item.at - Date.now()) < 60_000);
      delete item.at;
    });
    assert.deepEqual(found, request.body);
    if (failure) throw FAILURES[failure]();
    const text = "body" in answer ? JSON.stringify(answer.body) : (answer.text ?? "");
    return new Response(text, { status: answer.status, headers: answer.headers ?? {} });
  };
  return { left, answer };
}

function assertHas(found, expected) {
  if (Array.isArray(expected)) {
    assert.equal(found.length, expected.length);
    expected.forEach((each, place) => assertHas(found[place], each));
  } else if (typeof expected === "object" && expected !== null) {
    for (const [name, value] of Object.entries(expected)) assertHas(found[name], value);
  } else assert.deepEqual(found, expected);
}

async function run({ call, arguments: given, options, client: how = {}, exchanges, gives, raises }) {
  const { left, answer } = wire(exchanges);
  const client = new Client("http://service", { ...how, retry: { firstWaitMs: 0 }, fetch: answer });
  const own = Object.fromEntries(
    Object.entries(options).map(([name, value]) => [name, value?.$number === "NaN" ? NaN : value]),
  );
  let result, error;
  try {
    result = await client[CALLS[call]](...given, own);
  } catch (failure) {
    if (!(failure instanceof ShortlistError)) throw failure;
    error = failure;
  }
  if (!raises) {
    if (error) throw error;
    assertHas(result, gives ?? {});
  } else {
    assert.equal(error?.name, raises.error, String(error));
    for (const name of ["code", "status"]) if (name in raises) assert.equal(error[name], raises[name]);
    if (raises.errors) assert.deepEqual(error.errors, raises.errors);
    for (const words of raises.says ?? []) assert(error.message.includes(words), error.message);
    assert(!error.message.includes("\n") && !error.message.includes("sl_secret"));
  }
  assert.deepEqual(left, []);
}

const outcome = {};
for (const each of cases.filter(({ call }) => call in CALLS)) {
  try {
    await run(each);
    outcome[each.name] = "";
  } catch (error) {
    outcome[each.name] = String(error?.stack ?? error);
  }
}
console.log(JSON.stringify(outcome));
