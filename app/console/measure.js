// What several pages ask of a bandit: its time line, its last decisions, and what they say of it.

import { get, list, now, path, query } from "./api.js";
import { address, empty, h, isPicture, link, panel, table } from "./dom.js";
import { count, decisionsIn, plain, signed } from "./format.js";
import { fieldOf, write } from "./json.js";
import { meanOf } from "./linear.js";

const PARTS = 40;
const LOOKS = 6;
export const LAST = 1000;
const MOST_READ = 10_000;
const MOST_TITLES = 200;

/** Ranges of time that can be chosen, in ms. */
export const RANGES = { hour: 3_600_000, day: 86_400_000, week: 7 * 86_400_000, month: 30 * 86_400_000 };

/** The report of the time in which there are decisions, cut into some 40 pieces of a second or more. @param {string} bandit @param {number | null} since by default a week ago @param {AbortSignal} [signal] */
export async function timeline(bandit, since, signal) {
  const from = Math.floor(since ?? now() - RANGES.week);
  // Where they begin and end: a report reads all decisions of its time, so it is asked for once.
  const edges = await Promise.all(["asc", "desc"].map((order) => get(path`/v1/bandits/${bandit}/log` + query({ from, order, limit: 1 }), signal)));
  const [begin, last] = edges.map(({ items }) => items[0]?.time ?? from);
  const bucketS = Math.max(1, Math.ceil((last + 1 - begin) / PARTS / 1000));
  const report = await get(path`/v1/bandits/${bandit}/report` + query({ from: begin, to: last + 1, bucket_s: bucketS }), signal);
  return { report, bucketS, from: begin, to: last + 1 };
}

/**
 * The mean reward of a group by pieces of time: a piece without decisions is a gap. With the standard deviation of a
 * decision, each point has two standard errors on both sides, within `bounds`.
 * @param {any} report @param {string} group @param {number | null} [sd] @param {[number, number]} [bounds]
 */
export function course(report, group, sd = null, [least, most] = [-Infinity, Infinity]) {
  return report.buckets.map((/** @type {any} */ bucket) => {
    const own = bucket.groups.find((/** @type {any} */ each) => each.group === group && each.decisions);
    if (!own) return { x: bucket.from, y: null, n: 0 };
    const error = sd === null ? null : (2 * sd) / Math.sqrt(own.decisions);
    return { x: bucket.from, y: own.mean_reward, n: own.decisions, ...(error === null ? {} : { low: Math.min(own.mean_reward, Math.max(least, own.mean_reward - error)), high: Math.max(own.mean_reward, Math.min(most, own.mean_reward + error)) }) };
  });
}

/** The standard deviation of what a decision of a group earned, among rows of the log; null where too few are known. @param {any[]} rows @param {string} group */
export function deviation(rows, group) {
  const values = rows.filter((row) => (row.group ?? "policy") === group).map((row) => row.arms.reduce((/** @type {number} */ sum, /** @type {any} */ arm) => sum + (earned(row, arm.id) ?? 0), 0));
  const { mean } = meanOf(values);
  return mean === null || values.length < 2 ? null : Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
}

/**
 * What was known of both groups at some times: means of all decisions until then, with their bands. After a half of the decisions, a
 * quarter, and so on, as pieces of `report` count them, so that all looks together read the log at most once more.
 * @param {string} bandit @param {number} from @param {number} to @param {any} report of all, in pieces @param {number} bucketS @param {AbortSignal} [signal]
 */
export async function bands(bandit, from, to, report, bucketS, signal) {
  /** @type {{at: number, before: number}[]} */
  const ends = [];
  let before = 0;
  for (const { from: begin, groups } of report.buckets) {
    before += groups.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.decisions, 0);
    ends.push({ at: begin + 1000 * bucketS, before });
  }
  const times = Array.from({ length: LOOKS }, (_, place) => ends.filter((each) => each.before && each.before <= report.decisions / 2 ** (place + 1)).pop()?.at ?? 0);
  const looks = [...new Set(times)].filter((at) => at && at < to).sort((a, b) => a - b);
  const reports = await Promise.all(looks.map((at) => get(path`/v1/bandits/${bandit}/report` + query({ from: Math.floor(from), to: at }), signal)));
  return [...looks.map((at, place) => ({ at, report: reports[place] })), { at: to, report }];
}

/** The last decisions of a bandit, the newest last. @param {string} bandit @param {AbortSignal} [signal] @param {number} [most] @returns {Promise<any[]>} */
export async function lastDecisions(bandit, signal, most = LAST) {
  return (await list(path`/v1/bandits/${bandit}/log?order=desc`, most, signal)).items.reverse();
}

/** The last decisions for a key, the newest first, and how many rows were read for them. @param {string} bandit @param {string} key @param {number} most @param {AbortSignal} [signal] */
export async function decisionsOf(bandit, key, most, signal) {
  /** @type {any[]} */
  const found = [];
  let [read, cursor] = [0, null];
  do {
    const page = await get(path`/v1/bandits/${bandit}/log` + query({ order: "desc", limit: 1000, cursor }), signal);
    found.push(...page.items.filter((/** @type {any} */ row) => row.key === key));
    [read, cursor] = [read + page.items.length, page.next];
  } while (cursor && found.length < most && read < MOST_READ);
  return { rows: found.slice(0, most), read, isAll: !cursor };
}

/**
 * Since when the holdout is served what it is, and since when with this share, in ms. A report compares within each share.
 * @param {any} bandit @param {AbortSignal} [signal] @returns {Promise<{since: number | null, share: number | null}>}
 */
export async function holdoutSince(bandit, signal) {
  const { items } = await list(path`/v1/bandits/${bandit.id}/versions`, 100, signal);
  const begin = (/** @type {(holdout: any) => string} */ told) => {
    const changed = items.findIndex((/** @type {any} */ version) => told(version.holdout) !== told(bandit.holdout));
    return items[(changed < 0 ? items.length : changed) - 1]?.since_ms ?? null;
  };
  return { since: begin((holdout) => write(holdout?.serve ?? null)), share: begin(write) };
}

/** Of which decisions a report's numbers are, where they are not of all; "" where they are. @param {any} report */
export function lookOf({ decisions, as_of_decisions, next_look }) {
  return as_of_decisions < decisions ? `of the first ${count(as_of_decisions)} of ${decisionsIn(decisions)}, with new numbers at ${count(next_look)}` : "";
}

/** The lift in a word, with its interval. @param {any} bandit @param {any} lift @param {string} [look] of which decisions it is */
export function verdict(bandit, { value, interval }, look = "") {
  if (!bandit.holdout) return h("span", { class: "soft" }, "no holdout");
  if (!interval) return h("span", {}, h("span", { class: "tag" }, "cannot tell yet"), h("span", { class: "meaning" }, value === null ? "no decisions in both groups" : `${signed(value)}, no interval yet${look && `, ${look}`}`));
  const [word, kind] = interval[0] > 0 ? ["better", "good"] : interval[1] < 0 ? ["worse", "bad"] : ["cannot tell yet", ""];
  return h("span", {}, h("span", { class: `tag ${kind}` }, word), h("span", { class: "meaning" }, `${signed(value)}, 95%: ${signed(interval[0])} … ${signed(interval[1])}${look && `, ${look}`}`));
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

/** Names of all bandits, catalogues or what else is listed so, at most 200. @param {string} what @param {AbortSignal} [signal] */
export async function names(what, signal) {
  return (await list(`/v1/${what}`, 200, signal)).items;
}

/** What a page is of, where its address does not say: the only one there is, or a choice. @param {import("./main.js").View} view @param {string} page @param {"bandits" | "catalogues"} what @param {string[]} columns @param {(each: any) => any[]} cells after the name */
export async function chooseOne(view, page, what, columns, cells) {
  const all = await names(what, view.signal);
  if (all.length === 1) return location.replace(address([page, all[0].id]));
  const rows = all.map((each) => [link(each.id, [page, each.id]), ...cells(each)]);
  return view.root.append(panel(what === "bandits" ? "Which bandit?" : "Over which arms?", all.length ? table(what, [what.slice(0, -1), ...columns], rows) : empty("There is none yet. ", link("Make one on the overview", []), ".")));
}

/** Titles of arms by catalogue and id, as far as they were asked for. @type {Map<string, Map<string, Promise<string>>>} */
const titles = new Map();

/**
 * What arms are called: the field that the catalogue names as title, else their ids. Asked for once each, at most 200
 * at a time; the rest have their ids.
 * @param {any} catalogue its id, or what is known of it @param {string[]} ids @param {AbortSignal} [signal]
 * @returns {Promise<(id: string) => string>}
 */
export async function titlesOf(catalogue, ids, signal) {
  const owner = typeof catalogue === "string" ? await get(path`/v1/catalogues/${catalogue}`, signal) : catalogue;
  const field = owner.display?.title;
  if (!field) return (id) => id;
  const at = `${owner.id} ${field}`;
  const known = titles.get(at) ?? titles.set(at, new Map()).get(at) ?? new Map();
  for (const id of [...new Set(ids)].filter((each) => !known.has(each)).slice(0, MOST_TITLES)) {
    known.set(id, get(path`/v1/catalogues/${owner.id}/arms/${id}`, signal).then((arm) => titleIn(arm, field)).catch(() => (known.delete(id), id)));
  }
  const pairs = await Promise.all([...known].map(async ([id, title]) => /** @type {[string, string]} */ ([id, await title])));
  const found = new Map(pairs);
  return (id) => found.get(id) ?? id;
}

/** What columns of features are called: those of a hashed text by its words. @param {string} catalogue @param {AbortSignal} [signal] @returns {Promise<(column: string) => string>} */
export async function columnNames(catalogue, signal) {
  const { items } = await list(path`/v1/catalogues/${catalogue}/fields`, 100, signal).catch(() => ({ items: [] })); // a key may not read them, or arms are not here
  const known = /** @type {Map<string, string>} */ (new Map());
  for (const { field, words } of items) for (const [slot, own] of (words ?? []).entries()) if (own.length) known.set(`${field}.${slot}`, `${field}: ${own.join(", ")}`);
  return (column) => known.get(column) ?? column;
}

/** A field of metadata by its dotted name. @param {any} metadata @param {string} field @returns {any} */
export function valueIn(metadata, field) {
  return fieldOf(metadata, field) ?? field.split(".").reduce((part, name) => (part && typeof part === "object" ? fieldOf(part, name) : undefined), metadata);
}

/** The picture of an arm, where its catalogue says which field has the address of one; without telling that site of this page. @param {any} catalogue @param {any} arm @param {string} kind */
export function pictureOf(catalogue, { metadata }, kind) {
  const source = catalogue.display?.picture && plain(valueIn(metadata, catalogue.display.picture));
  return source && isPicture(source) ? h("img", { src: source, alt: "", class: kind, loading: "lazy", referrerpolicy: "no-referrer" }) : null;
}

/** What an arm is called by a field of its metadata. @param {any} arm @param {string | undefined} field @returns {string} */
export function titleIn(arm, field) {
  const value = field ? valueIn(arm.metadata, field) : undefined;
  return value === undefined || value === null || typeof value === "object" ? arm.id : String(value);
}
