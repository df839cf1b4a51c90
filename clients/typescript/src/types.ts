// What calls take and give. Fields have the names of the REST contract; a test holds them to /openapi.json.
// This file has types alone: the build ships it as it is, as declarations. Options may be given as undefined, which is
// as if they were absent, also with exactOptionalPropertyTypes.

/** A metadata filter in the language of MongoDB's queries: {price: {$lte: 20}}. */
export type Filter = Record<string, unknown>;

/** The context of a choice: numbers, or named fields. */
export type Context = number[] | Record<string, number | string | string[] | null>;

export interface Pin {
  arm: string;
  /** From 1. */
  place: number;
}

export interface AtMost {
  field: string;
  count: number;
}

export interface Diverse {
  /** From 0 to 1. */
  weight: number;
  /** "features", or a field of the metadata. */
  over?: string | undefined;
}

export interface Rules {
  pin?: Pin[] | undefined;
  at_most?: AtMost[] | undefined;
  diverse?: Diverse | null | undefined;
}

export interface ChooseRequest {
  /** Who is asked for: needed by bandits of scope per_key, and refused by others. */
  key?: string | null | undefined;
  /** How many arms. */
  k?: number | undefined;
  exclude?: string[] | undefined;
  /** The same event is the same decision. The client makes one up where that matters. */
  event_id?: string | null | undefined;
  seed?: number | null | undefined;
  /** False: the decision counts only once it is activated. */
  activate?: boolean | undefined;
  baseline?: string | null | undefined;
  filter?: Filter | null | undefined;
  rules?: Rules | null | undefined;
  context?: Context | null | undefined;
  /** What comes with each arm: "metadata", or "metadata." and the name of a field; and "ranking", all candidates. */
  include?: string[] | undefined;
  /** Whom a global bandit that limits repeats shows it to. */
  visitor?: string | null | undefined;
  /** Of signals, over those of the bandit. */
  weights?: Record<string, number> | null | undefined;
  /** The only arms that may be chosen: ids of the catalogue, or arms of this request alone. */
  candidates?: (string | Candidate)[] | null | undefined;
}

/** A choice of a page: a row of it. */
export interface PageRequest extends ChooseRequest {
  bandit: string;
}

/** With `features` or `metadata` an arm of this request alone; else the arm of the catalogue with this id. */
export interface Candidate {
  id: string;
  features?: number[] | undefined;
  metadata?: Record<string, unknown> | undefined;
  tags?: string[] | undefined;
  /** What this request says of the arm, by the fields of the bandit's `match`. */
  match?: Record<string, unknown> | null | undefined;
}

export interface ChosenArm {
  id: string;
  score: number;
  /** The probability of this arm given those before it, where the policy knows it. */
  propensity?: number | null;
  /** It stands here because of a rule. */
  pinned: boolean;
  /** Where `include` asked for them. */
  metadata?: Record<string, unknown> | null;
}

export interface RankedCandidate {
  id: string;
  score: number;
  /** The propensity of standing first, where the policy knows propensities. */
  first?: number | null;
  /** False of one that filters, exclusions, rules, quotas or caps leave out; else absent. */
  eligible?: boolean;
}

export interface Choice {
  /** What the choice is rewarded with. */
  decision: string;
  /** The best first. */
  arms: ChosenArm[];
  policy: string;
  learner_version: number;
  catalogue_version: number;
  /** Every eligible arm was compared. */
  exact: boolean;
  stale_s?: number | null;
  eligible?: number | null;
  bandit_version: number;
  group?: string | null;
  /** By which the signals were weighed. */
  weights?: Record<string, number> | null;
  /** Of the learned prior, 0 while there is none. */
  prior_version?: number | null;
  /** Of the arm effects, 0 while none are found. */
  effects_version?: number | null;
  /** How many candidates are no arms of the catalogue. */
  unknown?: number;
  /** All candidates that there are, the largest score first, where `include` asked for it. */
  ranking?: RankedCandidate[] | null;
}

/** What a dry run is asked with: as a choice, without what only a decision has. */
export type DryRunRequest = Omit<ChooseRequest, "event_id" | "activate">;

export interface DryRunArm {
  id: string;
  score: number;
  /** The reward that the learner expects. */
  estimate: number;
  /** The standard deviation of the estimate. */
  width: number;
  /** The value that was drawn for the arm; null where the policy chooses by none. */
  draw: number | null;
  /** The part of the estimate that a new key has too, by a learned prior. */
  prior?: number | null;
  /** The part of the estimate that the arm has beyond its features. */
  effect?: number | null;
  /** How likely its place is looked at, a factor of the estimate there; absent without `position`. */
  place?: number | null;
  /** What its age adds, a part of `effect`. */
  age?: number | null;
  propensity?: number | null;
  pinned: boolean;
  /** Where `include` asked for them. */
  metadata?: Record<string, unknown> | null;
}

/** What a choice would be: its fields without a decision. */
export interface DryRun {
  arms: DryRunArm[];
  policy: string;
  learner_version: number;
  catalogue_version: number;
  exact: boolean;
  bandit_version: number;
  stale_s?: number | null;
  eligible?: number | null;
  group?: string | null;
  /** By which the signals were weighed. */
  weights?: Record<string, number> | null;
  /** Of the learned prior, 0 while there is none. */
  prior_version?: number | null;
  /** Of the arm effects, 0 while none are found. */
  effects_version?: number | null;
  /** How many candidates are no arms of the catalogue. */
  unknown?: number;
  /** All candidates that there are, the largest score first, where `include` asked for it. */
  ranking?: RankedCandidate[] | null;
}

/** The event that a choice was made for, in place of its decision. */
export interface ChoiceEvent {
  bandit: string;
  event_id: string;
  /** For bandits of scope per_key; a pass says it by itself. */
  key?: string | null | undefined;
  /** With whose pass the choice was made, for a key that rewards it. */
  visitor?: string | null | undefined;
}

/** Of a `decision`, or of an event: `bandit` and `event_id`, and what else ChoiceEvent has. */
export interface Reward {
  decision?: string | null | undefined;
  bandit?: string | null | undefined;
  event_id?: string | null | undefined;
  key?: string | null | undefined;
  visitor?: string | null | undefined;
  value: number;
  /** Which arm, where the choice had several; of an event, the first if absent. */
  arm?: string | null | undefined;
  /** For bandits that add up rewards: which reward this is. */
  reward_id?: string | null | undefined;
  /** Which of several rewards, exactly for bandits with signals. */
  signal?: string | null | undefined;
  /** When it was so, in ms since 1970: where the last reward counts it is the one that is latest. Now, if absent. */
  at?: number | undefined;
}

export interface Rejected {
  /** Place in the batch, from 0. */
  index: number;
  code: string;
}

export interface Receipt {
  accepted: number;
  /** What was there before: after a lost answer, what the first attempt sent. */
  duplicate: number;
  rejected: Rejected[];
}

export interface Activation {
  activated: number;
  duplicate: number;
  rejected: Rejected[];
}

/** How often and when a call that failed is sent again: by default the pauses add up to 6 to 13 s, and a service that starts is waited for. */
export interface Retry {
  /** 1: nothing is sent again. Default: 8. */
  attempts?: number | undefined;
  /** The first pause is between half and all of this; it doubles every time. Default: 100. */
  firstWaitMs?: number | undefined;
  /** No pause is longer; a service that asks for a longer one is not waited for. Default: 10000. */
  longestWaitMs?: number | undefined;
  /** After this time no further attempt begins. Default: 30000. */
  totalMs?: number | undefined;
}

export interface ClientOptions {
  /**
   * An API key. In a page: a pass for its visitor, or what gets one from your server: it is called at first, and again
   * when a pass has expired. All its passes are for one visitor.
   */
  key?: string | (() => string | Promise<string>) | undefined;
  /** How long each attempt may take. Default: 10000. */
  timeoutMs?: number | undefined;
  retry?: Retry | undefined;
  /** In place of the global fetch. */
  fetch?: typeof fetch | undefined;
}

export interface ChooseOptions extends ChooseRequest {
  /**
   * An answer that is lost on the way is asked for again, and is the same decision. Default: where that matters, for
   * bandits that count a decision without reward (wait_s). In a page: always.
   */
  once?: boolean | undefined;
}

export interface PageOptions {
  /** No request shows an arm that one before it shows, whatever its catalogue. */
  distinct?: boolean | undefined;
  /** Each request is answered by itself, by a choice or its error. */
  partial?: boolean | undefined;
  /** As of a choice. */
  once?: boolean | undefined;
}

export interface RewardOptions {
  /** Default: 1. */
  value?: number | undefined;
  arm?: string | undefined;
  reward_id?: string | undefined;
  signal?: string | undefined;
  /** When it was so, in ms since 1970. Default: now. */
  at?: number | undefined;
  /** Return when the reward is learned. */
  wait?: boolean | undefined;
}

export interface PassOptions {
  /** The `key` of choices of bandits of scope per_key, the `visitor` of others. */
  visitor: string;
  /** At most what `--visitors` of the key says. Default: 3600. */
  expiresInS?: number | undefined;
  /** Those that it is for, of the bandits of the key. Default: all of them. */
  bandits?: string[] | undefined;
}

/**
 * What keeps rewards that are not sent yet: localStorage, or anything like it. With `length` and `key` each is an item
 * of its own, so that pages side by side may share it; without, all are one item.
 */
export interface Keep {
  readonly length?: number;
  key?(index: number): string | null;
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
}

export interface SenderOptions {
  /** How many are sent together. Default: 100. */
  batch?: number | undefined;
  /** How many are held at most; `add` throws beyond. Default: 10000. */
  buffer?: number | undefined;
  /** How long a reward waits for others, and how long after a failure it is tried again. Default: 1000. */
  everyMs?: number | undefined;
  /** Where rewards are kept until the service has answered for them. Default: localStorage, in a page; null: nowhere. */
  keep?: Keep | null | undefined;
  /** Called with every reward that the service refuses, and its code. */
  onRejected?: ((reward: Reward, code: string) => void) | undefined;
}
