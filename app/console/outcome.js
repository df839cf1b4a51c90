// Is it better? A sentence of a bandit's report; what is wrong with it; and where bands of its rewards end.

import { get, now, path } from "./api.js";
import { count, decimal, decisionsIn, moreOrLess, number, percent, since, span } from "./format.js";
import { mismatch } from "./linear.js";
import { earned } from "./measure.js";

const QUIET_MS = 3_600_000;
const SETTLED_MS = 10_000; // by then a reward is learned, and chosen by
export const MISMATCH = "sample ratio mismatch";
const DIFFERENCES = [0.05, 0.1]; // of the mean of the holdout
const ALL_LOOKS = 3; // standard errors, about, of an interval that holds at all looks together

/** How strongly sizes of groups must speak against their share before it is said. */
export const SRM_FACTOR = 1000;

/** What the holdout of a bandit is served, in words. @param {any} bandit */
export function served({ holdout }) {
  const arms = holdout.serve?.arms;
  if (holdout.serve === "candidates") return "your list";
  return !arms ? "random arms" : arms.length === 1 ? `always ${arms[0]}` : `the fixed list of ${count(arms.length)} arms`;
}

/** What a decision earns, in words: the name of a signal that is the only one. @param {any} bandit */
function unitOf({ signals }) {
  const names = Object.keys(signals ?? {});
  return names.length > 1 ? "weighted reward" : (names[0] ?? "reward");
}

/**
 * Whether the policy earns more than its holdout, in one sentence, and the numbers behind it. All are of the same decisions as the
 * interval. Shares are of the holdout's mean; where that is not above 0 there are none.
 * @param {any} bandit @param {any} report @param {number} from when its decisions begin
 * @returns {{word: string, kind: string, sentence: string, numbers: string}}
 */
export function outcome(bandit, report, from) {
  const { lift: { value, interval }, decisions } = report;
  const untold = { word: "cannot tell yet", kind: "", numbers: numbersOf(report) };
  if (!bandit.holdout) return { ...untold, word: "no holdout", sentence: "It has no holdout, so nothing tells whether it is better than something else." };
  if (value === null && bandit.holdout.share >= 1 && report.agreement) return { ...untold, word: "in the shadow", sentence: `Your list is shown to all, so nothing tells yet whether it is better. ${agreementOf(report)}` };
  if (value === null) return { ...untold, sentence: `It cannot be told yet: ${decisions ? "one of the groups has no decision" : "no decision is in the log"}. ${agreementOf(report)}`.trim() };
  const begin = since(from, now());
  const other = served(bandit);
  if (!interval) return { ...untold, sentence: `It cannot be told yet whether it is better than ${other}: ${reasonOf(report)}.` };
  const base = report.groups.find((/** @type {any} */ each) => each.group === "holdout").mean_reward;
  const isShare = base > 0;
  const of = (/** @type {number} */ own) => (isShare ? own / base : own);
  const unit = isShare ? unitOf(bandit) : `${unitOf(bandit)} a decision`;
  if (interval[0] > 0 || interval[1] < 0) {
    const bounds = interval[0] > 0 ? interval : [-interval[1], -interval[0]];
    return { word: interval[0] > 0 ? "better" : "worse", kind: interval[0] > 0 ? "good" : "bad", sentence: `Since ${begin} ${moreOrLess(of(value), isShare)} ${unit} than ${other} (95%: ${span(bounds.map(of), isShare)}).`, numbers: numbersOf(report) };
  }
  const rest = isShare ? ` ${sizes(DIFFERENCES.map((each) => decisionsFor(each * base, report)))} There are ${count(report.decisions)}.` : "";
  return { ...untold, sentence: `It cannot be told yet whether it is better than ${other}: since ${begin} between ${moreOrLess(of(interval[0]), isShare)} and ${moreOrLess(of(interval[1]), isShare)} ${unit} (95%).${rest}` };
}

/** How far the policy would have shown what the holdout was served; "" where that is not known. @param {any} report */
export const agreementOf = ({ agreement }) => (agreement ? `The policy would have begun with the same arm in ${percent(agreement.same_first, 0)} of ${decisionsIn(agreement.decisions)}; ${percent(agreement.overlap, 0)} of the arms are in both lists.` : "");

/** Whether a warning says why a group has no interval. @param {string} text */
export const isOfInterval = (text) => /^(policy|holdout): no interval/.test(text);

/** Why there is no interval, in the words of the service: of the group that needs more. @param {any} report */
function reasonOf({ warnings }) {
  const needed = (/** @type {string} */ each) => Number(/about ([\d,]+)/.exec(each)?.[1].replaceAll(",", "") ?? 0);
  const [found] = warnings.filter(isOfInterval).sort((/** @type {string} */ a, /** @type {string} */ b) => needed(b) - needed(a));
  return found?.replace(/^(\w+): no/, "the $1 has no") ?? "there is no interval yet";
}

/** Of which differences so many decisions tell. @param {number[]} decisions one number for each of DIFFERENCES */
const sizes = (decisions) => `To tell a difference of ${DIFFERENCES.map((each) => percent(each, 0)).join(" and of ")} takes some ${decisions.map((each) => number(each, 2)).join(" and ")} decisions in all.`;

/** How many decisions it takes until the interval of a report is no wider than a difference: its width falls with their root. @param {number} difference @param {any} report */
function decisionsFor(difference, { lift: { interval }, as_of_decisions, unit }) {
  const needed = as_of_decisions * ((interval[1] - interval[0]) / 2 / difference) ** 2;
  return unit === "key" ? 2 ** Math.ceil(Math.log2(needed)) : needed; // with keys the numbers are made anew at powers of two
}

/** The same before there is an interval, of rewards of 0 and 1. @param {number} rate of rewards @param {number} share of the holdout */
export function planned(rate, share) {
  if (!(rate > 0 && rate < 1 && share > 0 && share < 1)) return "";
  return sizes(DIFFERENCES.map((each) => (ALL_LOOKS ** 2 * (1 - rate)) / (rate * each ** 2 * share * (1 - share))));
}

/** What the policy has earned more in all decisions, after the last look too; null: it is not known. @param {any} report */
function liftOfAll({ buckets = [], stages = [] }) {
  if (stages.length > 1) return null; // pieces of time say nothing of shares
  const [policy, holdout] = ["policy", "holdout"].map((name) => {
    const own = buckets.flatMap((/** @type {any} */ each) => each.groups.filter((/** @type {any} */ one) => one.group === name && one.decisions));
    const decisions = own.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.decisions, 0);
    return decisions ? own.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.decisions * each.mean_reward, 0) / decisions : null;
  });
  return policy === null || holdout === null ? null : policy - holdout;
}

/** Absolute: both means and their difference, of which decisions, and when there are new ones. @param {any} report */
function numbersOf(report) {
  const { groups, lift, decisions, as_of_decisions, next_look } = report;
  const [policy, holdout] = ["policy", "holdout"].map((name) => groups.find((/** @type {any} */ each) => each.group === name)?.mean_reward ?? null);
  if (policy === null) return "";
  const means = holdout === null ? `${decimal(policy)} a decision` : `${decimal(policy)} a decision against ${decimal(holdout)}: ${moreOrLess(lift.value, false)}${lift.interval ? ` (95%: ${span(lift.interval, false)})` : ", no interval yet"}`;
  const all = as_of_decisions < decisions ? liftOfAll(report) : null;
  const newest = all === null ? "" : ` Of all ${count(decisions)} it is ${moreOrLess(all, false)}.`;
  const shares = (report.stages ?? []).filter((/** @type {any} */ each) => each.weight > 0).map((/** @type {any} */ each) => percent(each.share, 0));
  const within = shares.length > 1 ? ` Compared within each share of the holdout: ${shares.join(", ")}.` : "";
  return `${means}, of ${as_of_decisions < decisions ? `the first ${count(as_of_decisions)} of ` : ""}${decisionsIn(decisions)}${next_look === null ? "" : `, with new numbers at ${count(next_look)}`}.${newest}${within}`;
}

/** What the holdout has cost, where the policy is the better one; "" elsewhere. @param {any} bandit @param {any} report */
export function costOf(bandit, { lift, groups }) {
  const size = groups.find((/** @type {any} */ each) => each.group === "holdout")?.decisions;
  if (!(lift.interval?.[0] > 0)) return "";
  return `The holdout has cost about ${number(lift.value * size, 2)} ${unitOf(bandit)}: its ${count(size)} decisions would have earned so much more.`;
}

/** What to do next, and the page where that is done. @param {any} bandit @param {any} report @param {string[]} alarms @returns {{text: string, parts: string[], query?: Record<string, string>}} */
export function nextStep(bandit, { lift: { interval }, next_look }, alarms) {
  const { id } = bandit;
  if (alarms.length) return { text: "see what changed before this went wrong", parts: ["bandits", id, "versions"] };
  if (!bandit.holdout) return { text: "set a holdout, so that there is something to compare with", parts: ["bandits", id, "settings"], query: { set: "holdout", to: '{"share": 0.1}' } };
  if (Number(bandit.holdout.share) === 1) return { text: "lower the share of the holdout, so that there is something to compare", parts: ["bandits", id, "settings"], query: { set: "holdout", to: '{"share": 0.5}' } };
  if (interval && interval[1] < 0) return { text: "see what it shows, and what it does not", parts: ["bandits", id, "explore"] };
  if (interval && interval[0] > 0) return { text: "ask what other settings would earn", parts: ["what-if", id] };
  return { text: `wait for more decisions${next_look === null ? "" : `: there are new numbers at ${count(next_look)}`}; meanwhile see whether it explores`, parts: ["bandits", id, "explore"] };
}

/** What is wrong with the catalogue of a bandit. @param {any} catalogue */
export function catalogueAlarms({ id, findings = [], index }) {
  const isLow = index && index.recall_at_1 !== null && index.recall_at_1 < index.target_recall;
  return [
    ...(findings.some((/** @type {any} */ each) => each.name === "features_replaced") ? [`features of ${id} replaced`] : []),
    ...(isLow ? [`recall ${percent(index.recall_at_1)}, ${percent(index.target_recall)} are wanted`] : []),
  ];
}

/** How many decisions of this share are of the policy, and of the holdout. @param {any} report @param {any} share @returns {[number, number]} */
export function sizesOf({ groups, stages }, share) {
  const own = stages?.find((/** @type {any} */ each) => Number(each.share) === Number(share));
  const of = (/** @type {string} */ name) => groups.find((/** @type {any} */ each) => each.group === name)?.decisions ?? 0;
  return stages ? [own?.policy ?? 0, own?.holdout ?? 0] : [of("policy"), of("holdout")];
}

/** What is wrong with a bandit, by its report and its last rows, the newest first. @param {any} bandit @param {any} report @param {any[]} rows @returns {string[]} */
export function alarmsOf(bandit, report, rows) {
  const found = [];
  for (const { signal, state } of report.guardrails ?? []) if (state === "broken") found.push(`guardrail of ${signal} broken`);
  const share = bandit.holdout?.share;
  const [policy, holdout] = sizesOf(report, share);
  if (share && share < 1 && bandit.scope === "global" && mismatch(policy, holdout, share) >= SRM_FACTOR) found.push(MISMATCH);
  const times = rows.flatMap((row) => row.rewards.filter((/** @type {any} */ each) => !each.default).map((/** @type {any} */ each) => each.time));
  const oldest = rows[rows.length - 1]?.time;
  if (rows.length && now() - rows[0].time < QUIET_MS && oldest < now() - QUIET_MS && Math.max(0, ...times) < now() - QUIET_MS) found.push("no rewards for an hour");
  const versions = new Set(rows.map((row) => row.learner_version));
  if (bandit.scope === "global" && rows.length >= 200 && versions.size === 1 && times.filter((each) => each < rows[0].time - SETTLED_MS).length > 50) found.push("the learner stands still");
  return found;
}

/** The features and the index of a bandit's catalogue as alarms. @param {any} bandit @param {AbortSignal} [signal] */
export const alarmsOfArms = async (bandit, signal) => catalogueAlarms(await get(path`/v1/catalogues/${bandit.catalogue}`, signal));

/**
 * Between which bounds the mean of decisions lies: those of the settings, and where these have none, the least and the most that one of
 * `rows` has earned. @param {any} bandit @param {any[]} rows @returns {[number, number]}
 */
export function boundsOf({ reward, signals }, rows) {
  const longest = Math.max(1, ...rows.map((row) => row.arms.length));
  const rules = signals ? Object.values(signals) : [reward];
  const ends = rules.map(({ min, max, default: other, weight = 1, aggregate }) => {
    const [low, high] = [min === null ? null : Math.min(Number(min), Number(other ?? 0)), max === null ? null : Math.max(Number(max), Number(other ?? 0))];
    const isAdded = aggregate === "sum"; // of several rewards: only 0 bounds them
    const scaled = [isAdded && low !== 0 ? null : low, isAdded && high !== 0 ? null : high].map((end) => (end === null ? null : end * Number(weight)));
    return Number(weight) < 0 ? scaled.reverse() : scaled;
  });
  const bound = (/** @type {number} */ side) => (ends.some((each) => each[side] === null) ? null : ends.reduce((sum, each) => sum + Number(each[side]), 0));
  const values = rows.map((row) => row.arms.reduce((/** @type {number} */ sum, /** @type {any} */ arm) => sum + (earned(row, arm.id) ?? 0), 0));
  const [low, high] = [bound(0), bound(1)];
  return [low === null ? values.reduce((least, each) => Math.min(least, each), Infinity) : Math.min(low, low * longest), high === null ? values.reduce((most, each) => Math.max(most, each), -Infinity) : Math.max(high, high * longest)];
}
