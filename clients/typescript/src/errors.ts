// Every error that a call can end with; the tree is that of the Python client.

export class ShortlistError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}
/** What was given cannot be sent; nothing was sent. */
export class InvalidArgument extends ShortlistError {}
/** Nobody answers at the address, or the connection broke. */
export class ConnectionFailed extends ShortlistError {}
/** Nobody answered in time. */
export class TimedOut extends ConnectionFailed {}
/** Who answers is no Shortlist service, or one of another version. */
export class UnexpectedAnswer extends ShortlistError {}
/** The service refused this reward, for the reason `code`. */
export class RewardRejected extends ShortlistError {
  code: string;
  constructor(code: string) {
    super(`the reward was rejected: ${code}`);
    this.code = code;
  }
}

export interface FieldError {
  loc: (string | number)[];
  message: string;
}

/** The service answered with a problem document. */
export class ServiceError extends ShortlistError {
  status: number;
  code: string;
  detail: string;
  errors: FieldError[];
  constructor(call: string, status: number, problem: { code: string; detail?: string; errors?: FieldError[] }) {
    const errors = problem.errors ?? [];
    const fields = errors.slice(0, 3).map((each) => `${each.loc.join(".")}: ${each.message}`).join("; ");
    super(`${call}: ${status} ${problem.code}: ${fields || problem.detail}`);
    this.status = status;
    this.code = problem.code;
    this.detail = problem.detail ?? "";
    this.errors = errors;
  }
}
export class BadRequest extends ServiceError {}
export class Unauthorized extends ServiceError {}
export class PassExpired extends Unauthorized {}
export class Forbidden extends ServiceError {}
export class NotFound extends ServiceError {}
export class Conflict extends ServiceError {}
export class NoArms extends Conflict {}
export class NotFitted extends Conflict {}
export class NotChangeable extends Conflict {}
export class TooDifferent extends Conflict {}
export class EventUsed extends Conflict {}
export class PreconditionFailed extends ServiceError {}
export class TooLarge extends ServiceError {}
export class UnsupportedEncoding extends ServiceError {}
export class Invalid extends ServiceError {}
export class DimensionMismatch extends Invalid {}
export class NotPossibleHere extends Invalid {}
export class TooManyQuotas extends Invalid {}
export class TooManyRequests extends ServiceError {}
export class QuotaReached extends ServiceError {}
export class NotInstalled extends ServiceError {}
export class Unavailable extends ServiceError {}
export class StoreFull extends Unavailable {}

/** The class of a code; a code of a newer service is a ServiceError. */
export const BY_CODE: Record<string, typeof ServiceError> = {
  bad_request: BadRequest,
  unauthorized: Unauthorized,
  pass_expired: PassExpired,
  forbidden: Forbidden,
  not_found: NotFound,
  conflict: Conflict,
  no_arms: NoArms,
  not_fitted: NotFitted,
  not_changeable: NotChangeable,
  too_different: TooDifferent,
  event_used: EventUsed,
  precondition_failed: PreconditionFailed,
  too_large: TooLarge,
  unsupported_encoding: UnsupportedEncoding,
  invalid: Invalid,
  dimension_mismatch: DimensionMismatch,
  not_possible_here: NotPossibleHere,
  too_many_quotas: TooManyQuotas,
  too_many_requests: TooManyRequests,
  quota_reached: QuotaReached,
  not_installed: NotInstalled,
  unavailable: Unavailable,
  store_full: StoreFull,
};
