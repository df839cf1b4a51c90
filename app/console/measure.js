// What several pages ask of a bandit: its time line, its last decisions, and what they say of it.

import { get, list, now, path, query } from "./api.js";
import { fieldOf } from "./json.js";
import { meanOf } from "./linear.js";

const PARTS = 40;
const LOOKS = 8;
const LAST = 1000;

/** Where the decisions of a bandit begin, as far as it was seen. @type {Map<string, number>} */
const begins = new Map();

/**
 * The report of the time in which there are decisions, cut into some 40 pieces of a second or more.
 * @param {string} bandit @param {number | null} since by default a week ago @param {AbortSignal} [signal]
 */
export async function timeline(bandit, since, signal) {
  const first = since ?? now() - 7 * 86_400_000;
  let from = Math.max(first, begins.get(bandit) ?? 0);
  let to = now() + 1000;
  for (let look = 0; ; look++) {
    const bucketS = Math.max(1, Math.ceil((to - from) / PARTS / 1000));
    const report = await get(path`/v1/bandits/${bandit}/report` + query({ from: Math.floor(from), to: Math.ceil(to), bucket_s: bucketS }), signal);
    const filled = report.buckets.filter((/** @type {any} */ bucket) => bucket.groups.some((/** @type {any} */ group) => group.decisions));
    if (!filled.length) return { report, bucketS, from };
    const [begin, end] = [filled[0].from, filled[filled.length - 1].from + bucketS * 1000];
    begins.set(bandit, begin);
    if (bucketS === 1 || look === 4 || end - begin > (to - from) / 2) return { report, bucketS, from };
    [from, to] = [Math.max(first, begin), end];
  }
}

/** The mean reward of a group by pieces of time. @param {any} report @param {string} group */
export function course(report, group) {
  return report.buckets.flatMap((/** @type {any} */ bucket) => {
    const own = bucket.groups.find((/** @type {any} */ each) => each.group === group && each.decisions);
    return own ? [{ x: bucket.from, y: own.mean_reward, decisions: own.decisions }] : [];
  });
}

/**
 * What was known of both groups at some times: means of all decisions until then, with their bands.
 * @param {string} bandit @param {number} from @param {number} to @param {AbortSignal} [signal]
 */
export async function bands(bandit, from, to, signal) {
  const looks = [];
  for (let part = 1; part <= LOOKS; part++) {
    const until = Math.ceil(from + ((to - from) * part) / LOOKS);
    looks.push({ at: until, report: await get(path`/v1/bandits/${bandit}/report` + query({ from: Math.floor(from), to: until }), signal) });
  }
  return looks;
}

/**
 * The last decisions of a bandit, at most 1,000, the newest last. The log is read from a short time ago, then from
 * further back, until there are enough of them and not too many: some ten pages at most.
 * @param {string} bandit @param {number} keepS how long rows are kept @param {AbortSignal} [signal]
 * @returns {Promise<any[]>}
 */
export async function lastDecisions(bandit, keepS, signal) {
  const since = (/** @type {number} */ backS, most = LAST) =>
    list(path`/v1/bandits/${bandit}/log` + query({ from: Math.floor(now() - 1000 * backS) }), most, signal);
  let [short, long] = [0, Math.min(20, keepS)];
  let found = await since(long);
  /** @type {any[]} */
  let best = [];
  while (!found.next && found.items.length < LAST / 2 && long < keepS) {
    best = found.items;
    [short, long] = [long, Math.min(12 * long, keepS)];
    found = await since(long);
  }
  if (!found.next) return found.items;
  for (let look = 0; look < 5; look++) {
    const middle = (short + long) / 2;
    found = await since(middle);
    if (found.next) long = middle;
    else if (found.items.length >= LAST / 2) return found.items;
    else [short, best] = [middle, found.items];
  }
  const { items } = await since(long, 5 * LAST);
  return items.length > best.length ? items.slice(-LAST) : best;
}

/** What a decision has earned for an arm, signals by the weights that served; null where nothing is known of it. @param {any} row @param {string} arm */
export function earned(row, arm) {
  const own = row.rewards.filter((/** @type {any} */ reward) => reward.arm === arm);
  return own.length ? own.reduce((/** @type {number} */ sum, /** @type {any} */ reward) => sum + ((row.weights && fieldOf(row.weights, reward.signal)) ?? 1) * reward.value, 0) : null;
}

/** Arms of decisions: how often each was shown, and what it earned when it was rewarded. @param {any[]} rows */
export function shownArms(rows) {
  /** @type {Map<string, {id: string, shown: number, values: number[]}>} */
  const found = new Map();
  for (const row of rows) {
    for (const arm of row.arms) {
      /** @type {{id: string, shown: number, values: number[]}} */
      const own = found.get(arm.id) ?? { id: arm.id, shown: 0, values: [] };
      own.shown += 1;
      const value = earned(row, arm.id);
      if (value !== null) own.values.push(value);
      found.set(arm.id, own);
    }
  }
  return [...found.values()].map((arm) => ({ ...arm, ...meanOf(arm.values) })).sort((a, b) => b.shown - a.shown);
}

/** Entropy in bits of what is shown: 0 where it is always the same arm. @param {any[]} rows @returns {number} */
export function entropy(rows) {
  const arms = shownArms(rows);
  const total = arms.reduce((sum, arm) => sum + arm.shown, 0);
  return arms.reduce((sum, { shown }) => sum - (shown / total) * Math.log2(shown / total), 0);
}

/** Names of all bandits or catalogues, at most 200. @param {"bandits" | "catalogues" | "slates" | "centers"} what @param {AbortSignal} [signal] */
export async function names(what, signal) {
  return (await list(`/v1/${what}`, 200, signal)).items;
}
