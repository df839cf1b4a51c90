// The declarations of src/; a test holds names and members to the code.

import type { Activation, Choice, ChoiceEvent, ChooseOptions, ClientOptions, DryRun, DryRunRequest, PageOptions, PageRequest, PassOptions, Receipt, Reward, RewardOptions, SenderOptions } from "./types.js";

export type * from "./types.js";

/** One service at a URL. Keep one for the life of a page or program. */
export declare class Client {
  readonly url: string;
  /** Whom its pass is for; null without one; undefined until `key`, a function, was asked. */
  get visitor(): string | null | undefined;
  /** Whom its pass is for, after `key`, a function, was asked. */
  identify(): Promise<string | null>;
  /** Throws InvalidArgument: the URL is none. */
  constructor(url: string, options?: ClientOptions);
  /** Choose up to k arms, the best first. */
  choose(bandit: string, options?: ChooseOptions): Promise<Choice>;
  /**
   * Choose for requests of several bandits, the rows of a page, in one call. `distinct`: no row shows an arm that a row
   * before it shows. `partial`: each row is answered by itself, and in place of a choice stands its error.
   */
  choosePage(requests: PageRequest[], options: PageOptions & { partial: true }): Promise<(Choice | ServiceError)[]>;
  choosePage(requests: PageRequest[], options?: PageOptions): Promise<Choice[]>;
  /** What `choose` would choose now, with what the learner knows of each arm; nothing is decided. Needs a key of scope read. */
  dryRun(bandit: string, options?: DryRunRequest): Promise<DryRun>;
  /** Reward a decision, by its token or by the event that it was made for. It counts once, however often it is sent. Throws RewardRejected. */
  reward(decision: string | ChoiceEvent, options?: RewardOptions): Promise<Receipt>;
  /** Reward many decisions; each is accepted, a duplicate, or rejected with a code. `keepalive`: also when the page is left. */
  rewardBatch(rewards: Reward[], options?: { wait?: boolean | undefined; keepalive?: boolean | undefined }): Promise<Receipt>;
  /** Say that decisions were shown which were made with `activate: false`. */
  activate(decisions: (string | ChoiceEvent)[]): Promise<Activation>;
}

/** Sends rewards in the background: none is lost while the page lives, and in a page none when it is left. */
export declare class RewardSender {
  constructor(client: Client, options?: SenderOptions);
  /** How many rewards the service has not answered for. */
  get waiting(): number;
  /** Reward a decision soon. Throws InvalidArgument when too many wait: then this one is not taken. */
  add(decision: string | ChoiceEvent, options?: Omit<RewardOptions, "wait">): void;
  /** Send all that wait. Rejects with the error of the batch that cannot be sent; it waits on. */
  flush(): Promise<void>;
  /** Send all that wait, and end. */
  close(): Promise<void>;
}

/** A pass for one visitor, for a page: signed here with a key that was made with --visitors, and nothing is sent. Throws InvalidArgument. */
export declare function visitorPass(key: string, options: PassOptions): Promise<string>;

export interface FieldError {
  loc: (string | number)[];
  message: string;
}

/** Base of all errors of this client. */
export declare class ShortlistError extends Error {
  constructor(message: string, options?: ErrorOptions);
}
/** What was given cannot be sent; nothing was sent. */
export declare class InvalidArgument extends ShortlistError {}
/** Nobody answers at the address, or the connection broke. */
export declare class ConnectionFailed extends ShortlistError {}
/** Nobody answered in time. */
export declare class TimedOut extends ConnectionFailed {}
/** Who answers is no Shortlist service, or one of another version. */
export declare class UnexpectedAnswer extends ShortlistError {}
/** The service refused this reward, for the reason `code`. */
export declare class RewardRejected extends ShortlistError {
  code: string;
  constructor(code: string);
}
/** The service answered with a problem document. */
export declare class ServiceError extends ShortlistError {
  status: number;
  code: string;
  detail: string;
  errors: FieldError[];
  constructor(call: string, status: number, problem: { code: string; detail?: string; errors?: FieldError[] });
}
export declare class BadRequest extends ServiceError {}
export declare class Unauthorized extends ServiceError {}
export declare class PassExpired extends Unauthorized {}
export declare class Forbidden extends ServiceError {}
export declare class NotFound extends ServiceError {}
export declare class Conflict extends ServiceError {}
export declare class NoArms extends Conflict {}
export declare class NotFitted extends Conflict {}
export declare class NotChangeable extends Conflict {}
export declare class TooDifferent extends Conflict {}
export declare class EventUsed extends Conflict {}
export declare class PreconditionFailed extends ServiceError {}
export declare class TooLarge extends ServiceError {}
export declare class UnsupportedEncoding extends ServiceError {}
export declare class Invalid extends ServiceError {}
export declare class DimensionMismatch extends Invalid {}
export declare class NotPossibleHere extends Invalid {}
export declare class TooManyQuotas extends Invalid {}
export declare class TooManyRequests extends ServiceError {}
export declare class QuotaReached extends ServiceError {}
export declare class NotInstalled extends ServiceError {}
export declare class Unavailable extends ServiceError {}
export declare class StoreFull extends Unavailable {}

/** The class of a code; a code of a newer service is a ServiceError. */
export declare const BY_CODE: Record<string, typeof ServiceError>;
