// What each setting of a bandit means, in a sentence; which of them PATCH changes; those that are objects as forms.

import { Exact, write } from "./json.js";

const DAY_S = 86_400;
const ADDS_UP = [["first", "the first counts"], ["last", "the last counts"], ["sum", "they are added up"]];

/** @type {Record<string, string>} */
export const MEANINGS = {
  catalogue: "The arms that it chooses from.",
  policy: "How it chooses: by a draw (sub_ts, linear_ts), by probabilities (softmax, igw, epsilon_greedy), by an upper bound (linucb), or by ruling arms out (elimination).",
  scope: "One learner for all (global), or one for each key (per_key).",
  ridge: "How strongly a new learner holds to its prior; auto: from the scale of features and rewards.",
  exploration: "How far a draw strays from the estimate; auto: from the noise that was seen.",
  delta: "The probability with which confidence bounds may fail.",
  horizon: "Over how many decisions elimination plans.",
  shortlist: "How many candidates the index hands to the exact comparison.",
  eta: "The width at which elimination takes the arms that are left for equal.",
  reward: "The bounds of a reward, how several for one decision add up, and what counts if none comes.",
  prior: "What a new key begins with: what the keys have in common (learned), or nothing (plain).",
  half_life_s: "After how many seconds a reward counts half: a number for keys and arms alike, or an object with arms, which can be changed, and keys, which cannot.",
  idle_ttl_s: "After how many seconds without a reward a learner is forgotten.",
  temperature: "How evenly softmax spreads its choices: the higher, the more evenly.",
  epsilon: "With this probability epsilon_greedy draws an arm at random.",
  arm_effects: "auto: what each arm has beyond its features is learned from all keys.",
  alpha: "How many standard deviations linucb adds to an estimate.",
  gamma: "How much igw prefers the best estimate: the higher, the more.",
  filter: "Which arms may be shown at all.",
  solver: "How the best arms for a draw are found: from the shortlist of the index, or by a search that adapts.",
  holdout: "The share that is served without the policy, to compare with.",
  log: "Which share of the decisions is kept, and for how long.",
  repeats: "How often a key, or a visitor of a global bandit, is shown the same arm.",
  signals: "Several rewards by name, what each weighs, and what counts until it comes.",
  guardrails: "What the mean of a signal is to stay below, or above.",
  position: "How likely the arm at each place of a list is looked at: what a reward says of it depends on that. auto: learned from all lists.",
  context: "The situation of a choice, as numbers or named fields.",
  options: "What the policy of a plug-in is told.",
  constraints: "Constraints of plug-ins that every choice keeps to.",
  intercept: "Whether learners have a number for what all arms have in common.",
  interactions: "How many principal directions of the arms meet the context.",
  match: "What a request may say of each of its candidates, such as a distance: further numbers of the arm.",
};

/** What a learner's sums depend on: it stays as it was made. */
export const FIXED = new Set(["catalogue", "scope", "context", "interactions", "intercept", "match"]);

export const CHANGEABLE = Object.keys(MEANINGS).filter((name) => !FIXED.has(name));

/** What is said of a bandit's log, which evaluations read. @param {any} bandit @returns {string[]} */
export const logWarnings = ({ warnings = [] }) => warnings.filter((/** @type {string} */ each) => /^in the log of /.test(each));

/** What is said of its settings. @param {any} bandit @returns {string[]} */
export const settingWarnings = ({ warnings = [] }) => warnings.filter((/** @type {string} */ each) => !/^in the log of /.test(each));

/** @param {any} value */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Exact);

/** RFC 7396: what a patch makes of a value. @param {any} value @param {any} patch @returns {any} */
export function merged(value, patch) {
  if (!isObject(patch)) return patch;
  const result = new Map(Object.entries(isObject(value) ? value : {}));
  for (const [name, each] of Object.entries(patch)) result.set(name, each === null ? "the default" : merged(result.get(name), each));
  return Object.fromEntries(result);
}

/**
 * `show`: the texts of the fields for a value. `make`: the value for what is typed in; null: none at all.
 * @typedef {{fields: import("./forms.js").Field[], show: (value: any) => Record<string, string>, make: (typed: Record<string, any>) => any}} SettingForm
 */

/** @param {any} value */
const text = (value) => (value === null || value === undefined ? "" : typeof value === "string" ? value : write(value));

/** @type {Record<string, SettingForm>} */
export const FORMS = {
  holdout: {
    fields: [
      { name: "on", label: "A holdout", kind: "select", options: [["yes", "yes"], ["no", "no"]] },
      { name: "share", label: "Its share", kind: "number", hint: "0.1: a tenth of the keys, or of the decisions of a global bandit." },
      { name: "serve", label: "It is shown", kind: "select", options: [["random", "arms at random"], ["candidates", "your list: the first candidates of each request"], ["list", "a list of arms"]] },
      { name: "arms", label: "The list", kind: "list", hint: "Ids of arms in their order, between commas." },
      { name: "else", label: "Where none of these is eligible", kind: "select", options: [["default", "as it is by default"], ["random", "arms at random"], ["refuse", "nothing (409)"]] },
    ],
    show: (value) => ({ on: value ? "yes" : "no", share: text(value?.share), serve: value?.serve?.arms ? "list" : (value?.serve ?? "random"), arms: (value?.serve?.arms ?? []).join(", "), else: value?.else ?? "default" }),
    make: ({ on, share = null, serve, arms = [], ...typed }) => (on === "no" ? null : { share, serve: serve === "list" ? { arms } : serve, else: typed.else === "default" ? null : typed.else }),
  },
  log: {
    fields: [
      { name: "on", label: "Keep a log", kind: "select", options: [["yes", "yes"], ["no", "no"]] },
      { name: "days", label: "For how many days", kind: "number", hint: "7 if empty." },
      { name: "share", label: "Share of the decisions", kind: "number", hint: "1 if empty: all." },
    ],
    show: (value) => ({ on: value ? "yes" : "no", days: value ? text(Number(value.keep_s ?? 7 * DAY_S) / DAY_S) : "", share: text(value?.share) }),
    make: ({ on, days = null, share = null }) => (on === "no" ? null : { keep_s: days === null ? null : Number(days) * DAY_S, share }),
  },
  reward: {
    fields: [
      { name: "min", label: "At least", kind: "number", hint: "Less is refused. Empty: no bound." },
      { name: "max", label: "At most", kind: "number", hint: "More is refused. Empty: no bound." },
      { name: "aggregate", label: "Several for one decision", kind: "select", options: /** @type {[string, string][]} */ (ADDS_UP) },
      { name: "wait_s", label: "Wait for how many seconds", kind: "number", hint: "Then the default counts. Empty: a decision without a reward teaches nothing." },
      { name: "default", label: "The default", kind: "number", hint: "0 if empty." },
    ],
    show: (value) => Object.fromEntries(["min", "max", "aggregate", "wait_s", "default"].map((name) => [name, text(value?.[name])])),
    make: ({ min = null, max = null, aggregate = "first", wait_s = null, ...typed }) => ({ min, max, aggregate, wait_s, default: typed.default ?? null }),
  },
};

/** What a field is called in the form of a change. @param {string} setting @param {string} field */
export const fieldName = (setting, field) => `${setting}-${field}`;

/** All fields of all forms; errors of the service stand at the part that they name. */
export const FORM_FIELDS = Object.entries(FORMS).flatMap(([setting, { fields }]) => fields.map((field) => ({ ...field, name: fieldName(setting, field.name), loc: `${setting}.${{ days: "keep_s", arms: "serve" }[field.name] ?? field.name}` })));

/** The merge patch from one value of a setting to another: what is the same is left out. @param {any} before @param {any} after */
export function difference(before, after) {
  if (before === null || after === null) return after;
  return Object.fromEntries(Object.entries(after).filter(([name, value]) => write(value) !== write(before[name] ?? null)));
}
