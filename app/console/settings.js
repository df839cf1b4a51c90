// What each setting of a bandit means, in a sentence; which of them PATCH changes.

import { Exact } from "./json.js";

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
  prior: "What a new key begins with: what the keys have in common (learned), or nothing (plain). Pooled: the sums of the others.",
  prior_strength: "How much the pooled prior counts.",
  half_life_s: "After how many seconds a reward counts half.",
  idle_ttl_s: "After how many seconds without a reward a learner is forgotten.",
  temperature: "How evenly softmax spreads its choices: the higher, the more evenly.",
  epsilon: "With this probability epsilon_greedy draws an arm at random.",
  auto: "The rule by which auto is computed: 2 by the evidence of what a learner has seen, 1 that of older bandits.",
  arm_effects: "auto: what each arm has beyond its features is learned from all keys.",
  alpha: "How many standard deviations linucb adds to an estimate.",
  gamma: "How much igw prefers the best estimate: the higher, the more.",
  explore: "How many arms that cover the catalogue a new key is shown first.",
  filter: "Which arms may be shown at all.",
  shift_rewards: "Whether rewards are shifted, so that the best mean reward may be below 0.",
  solver: "How the best arms for a draw are found: from the shortlist of the index, or by a search that adapts.",
  holdout: "The share that is served without the policy, to compare with.",
  log: "Which share of the decisions is kept, and for how long.",
  repeats: "How often a key, or a visitor of a global bandit, is shown the same arm.",
  signals: "Several rewards by name, what each weighs, and what counts until it comes.",
  guardrails: "What the mean of a signal is to stay below, or above.",
  position: "How likely the arm at each place of a list is looked at: what a reward says of it depends on that.",
  context: "The situation of a choice, as numbers or named fields.",
  options: "What the policy of a plug-in is told.",
  constraints: "Constraints of plug-ins that every choice keeps to.",
  intercept: "Whether learners have a number for what all arms have in common.",
  interactions: "How many principal directions of the arms meet the context.",
};

/** What a learner's sums depend on: it stays as it was made. */
export const FIXED = new Set(["catalogue", "scope", "context", "interactions", "half_life_s", "shift_rewards", "intercept"]);

export const CHANGEABLE = Object.keys(MEANINGS).filter((name) => !FIXED.has(name));

/** @param {any} value */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Exact);

/** RFC 7396: what a patch makes of a value. @param {any} value @param {any} patch @returns {any} */
export function merged(value, patch) {
  if (!isObject(patch)) return patch;
  const result = new Map(Object.entries(isObject(value) ? value : {}));
  for (const [name, each] of Object.entries(patch)) result.set(name, each === null ? "the default" : merged(result.get(name), each));
  return Object.fromEntries(result);
}
