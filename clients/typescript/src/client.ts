// The calls, and when one is sent again: if it never left, or if a second one does no harm.

import { BY_CODE, ConnectionFailed, Forbidden, InvalidArgument, NotFound, PassExpired, RewardRejected, ServiceError, TimedOut, TooManyRequests, UnexpectedAnswer } from "./errors.ts";
import { IDENTIFIER, visitorOf } from "./passes.ts";
import type { Activation, Choice, ChoiceEvent, ChooseOptions, ClientOptions, DryRun, DryRunRequest, PageOptions, PageRequest, Receipt, Reward, RewardOptions } from "./types.ts";

const TRY_LATER = new Set([429, 502, 503, 504]);
// What Node says of a request that never left. A browser does not tell.
const NEVER_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);
const DRY_RUN = ["arms", "policy", "learner_version", "catalogue_version", "exact"];
const CHOICE = ["decision", ...DRY_RUN];
const RECEIPT = ["accepted", "duplicate", "rejected"];
const ACTIVATION = ["activated", "duplicate", "rejected"];
// In one request; the service takes ten times as many rewards, and bodies of 4 MiB: characters have up to four bytes each.
const MOST = 1000;
const MOST_CHARS = 1_000_000;

interface Call {
  method: string;
  path: string;
  body?: unknown;
  /** The fields that the answer must have. */
  fields: string[];
  /** A second one does no harm. */
  safe: boolean;
  keepalive?: boolean;
}

export class Client {
  readonly url: string;
  #options: ClientOptions;
  #key: string | undefined;
  #asking: Promise<void> | undefined;
  #retry: { attempts: number; firstWaitMs: number; longestWaitMs: number; totalMs: number };
  // By bandit: whether a choice matters that nobody saw, and of which version that is known.
  #matters = new Map<string, { matters: boolean; version: number | null }>();

  constructor(url: string, options: ClientOptions = {}) {
    if (!/^https?:\/\/[^\s?#]+$/.test(url)) throw new InvalidArgument("url must be the address of a service, http://host:port");
    this.url = url.replace(/\/+$/, "");
    this.#options = checked(options, '{ key: "sl_…" }');
    if (typeof options.key === "string") this.#key = options.key;
    const { attempts = 8, firstWaitMs = 100, longestWaitMs = 10_000, totalMs = 30_000 } = options.retry ?? {};
    this.#retry = { attempts, firstWaitMs, longestWaitMs, totalMs };
  }

  get visitor(): string | null | undefined {
    return this.#key === undefined && this.#options.key ? undefined : visitorOf(this.#key);
  }

  async identify(): Promise<string | null> {
    if (this.visitor === undefined) await this.#renew(undefined);
    return this.visitor ?? null;
  }

  /** Choose up to k arms, the best first. */
  async choose(bandit: string, options: ChooseOptions = {}): Promise<Choice> {
    const path = pathOf(bandit);
    const { once, ...body } = checked(options, "{ k: 5 }");
    const safe = await this.#isSafe(bandit, body, once);
    return this.#chosen(bandit, await this.#send<Choice>({ method: "POST", path: `${path}/choose`, body, fields: CHOICE, safe }));
  }

  /**
   * Choose for requests of several bandits, the rows of a page, in one call. `distinct`: no row shows an arm that a row
   * before it shows. `partial`: each row is answered by itself, and in place of a choice stands its error.
   */
  async choosePage(requests: PageRequest[], options: PageOptions & { partial: true }): Promise<(Choice | ServiceError)[]>;
  async choosePage(requests: PageRequest[], options?: PageOptions): Promise<Choice[]>;
  async choosePage(requests: PageRequest[], options: PageOptions = {}): Promise<(Choice | ServiceError)[]> {
    const { once, ...rest } = checked(options, "{ distinct: true }");
    const body = { requests: listed("requests", requests).map((each) => ({ ...checked(each, '{ bandit: "home" }') })), ...rest };
    let safe = true;
    for (const each of body.requests) {
      const isSafe = await this.#isSafe(each.bandit, each, once).catch((error) => {
        if (!(error instanceof NotFound)) throw error;
        return false; // the service says which request it is
      });
      safe &&= isSafe;
    }
    const call = { method: "POST", path: "/v1/choose/batch", body, fields: ["results"], safe };
    const { results } = await this.#send<{ results: (Choice & { error?: any })[] }>(call);
    return results.map((each, place) =>
      each.error
        ? new (BY_CODE[each.error.code] ?? ServiceError)(`request ${place}`, each.error.status, each.error)
        : this.#chosen(body.requests[place]!.bandit, each),
    );
  }

  /** What `choose` would choose now, with what the learner knows of each arm; nothing is decided. Needs a key of scope read. */
  async dryRun(bandit: string, options: DryRunRequest = {}): Promise<DryRun> {
    const body = { ...checked(options, "{ k: 5 }"), dry_run: true };
    const found = await this.#send<DryRun>({ method: "POST", path: `${pathOf(bandit)}/choose`, body, fields: DRY_RUN, safe: true });
    for (const arm of found.arms) arm.pinned ??= false;
    return found;
  }

  /** Reward a decision, by its token or by the event that it was made for. It counts once, however often it is sent. Throws RewardRejected. */
  async reward(decision: string | ChoiceEvent, options: RewardOptions = {}): Promise<Receipt> {
    const { wait, value = 1, ...rest } = checked(options, "{ value: 0 }");
    const receipt = await this.rewardBatch([{ ...itemOf(decision), ...rest, value }], { wait });
    if (receipt.rejected[0]) throw new RewardRejected(receipt.rejected[0].code);
    return receipt;
  }

  /** Reward many decisions; each is accepted, a duplicate, or rejected with a code. */
  async rewardBatch(rewards: Reward[], options: { wait?: boolean | undefined; keepalive?: boolean | undefined } = {}): Promise<Receipt> {
    const { wait, keepalive } = checked(options, "{ wait: true }");
    listed("rewards", rewards).forEach((each, place) => {
      if (!Number.isFinite(each?.value)) throw new InvalidArgument(`reward ${place}: value must be a finite number`);
    });
    const path = `/v1/rewards${wait ? "?wait=applied" : ""}`;
    const total: Receipt = { accepted: 0, duplicate: 0, rejected: [] };
    const now = Date.now();
    for (const { first, items } of batches(rewards.map((each) => ({ ...each, at: each.at ?? now })))) {
      const body = { rewards: items };
      const part = await this.#send<Receipt>({ method: "POST", path, body, fields: RECEIPT, safe: true, keepalive });
      total.accepted += part.accepted;
      total.duplicate += part.duplicate;
      total.rejected.push(...part.rejected.map(({ index, code }) => ({ index: first + index, code })));
    }
    return total;
  }

  /** Say that decisions were shown which were made with `activate: false`. */
  async activate(decisions: (string | ChoiceEvent)[]): Promise<Activation> {
    const total: Activation = { activated: 0, duplicate: 0, rejected: [] };
    for (const { first, items } of batches(listed("decisions", decisions))) {
      const body = { decisions: items };
      const call = { method: "POST", path: "/v1/decisions/activate", body, fields: ACTIVATION, safe: true };
      const part = await this.#send<Activation>(call);
      total.activated += part.activated;
      total.duplicate += part.duplicate;
      total.rejected.push(...part.rejected.map(({ index, code }) => ({ index: first + index, code })));
    }
    return total;
  }

  /** Whether a choice may be sent again; one that matters gets an event. */
  async #isSafe(bandit: string, body: ChooseOptions, once: boolean | undefined): Promise<boolean> {
    if ((once ?? (await this.#isMattering(bandit, pathOf(bandit)))) && body.event_id == null) body.event_id = randomId();
    return body.event_id != null || this.#matters.get(bandit)?.matters === false;
  }

  #chosen(bandit: string, choice: Choice): Choice {
    for (const arm of choice.arms) arm.pinned ??= false;
    const version = this.#matters.get(bandit)?.version;
    if (version != null && choice.bandit_version != null && version !== choice.bandit_version) this.#matters.delete(bandit);
    return choice;
  }

  /** Asked for once; taken for granted where the key may not know, and in a page or its workers, which may not ask. */
  async #isMattering(bandit: string, path: string): Promise<boolean> {
    if ("document" in globalThis || "WorkerGlobalScope" in globalThis) return true;
    let known = this.#matters.get(bandit);
    if (!known) {
      try {
        const found = await this.#send<any>({ method: "GET", path, fields: ["reward"], safe: true });
        known = { matters: found.reward.wait_s != null, version: found.version ?? null };
      } catch (error) {
        if (!(error instanceof Forbidden)) throw error;
        known = { matters: true, version: null };
      }
      this.#matters.set(bandit, known);
    }
    return known.matters;
  }

  async #send<T>(call: Call): Promise<T> {
    const retry = this.#retry;
    const began = Date.now();
    let renewed = false;
    if (this.visitor === undefined) await this.#renew(undefined);
    for (let failures = 1; ; failures++) {
      let error: Error;
      let again = call.safe;
      let wait = 0;
      const key = this.#key;
      try {
        const response = await this.#fetch(call);
        const text = await response.text();
        if (response.ok) return this.#read<T>(call, response, text);
        error = this.#refusal(call, response, text);
        const after = response.headers.get("retry-after");
        // What is too much at once was not begun: it may be sent again, whatever it is.
        again = error instanceof TooManyRequests || (again && TRY_LATER.has(response.status) && (response.status !== 429 || after !== null));
        wait = after !== null && /^\d+$/.test(after) ? 1000 * Number(after) : 0;
      } catch (failure) {
        if (failure instanceof UnexpectedAnswer) throw failure;
        error = this.#broken(call, failure);
        again ||= NEVER_SENT.has((failure as any)?.cause?.code);
      }
      if (error instanceof PassExpired && typeof this.#options.key === "function" && !renewed) {
        renewed = true;
        failures--;
        await this.#renew(key);
        continue;
      }
      if (!again || failures >= retry.attempts || Date.now() - began > retry.totalMs || wait > retry.longestWaitMs) throw error;
      const most = Math.min(retry.firstWaitMs * 2 ** (failures - 1), retry.longestWaitMs);
      await new Promise((done) => setTimeout(done, wait + (1 + Math.random()) * most / 2));
    }
  }

  /** Get another pass, unless that was done since `used` was sent. */
  #renew(used: string | undefined): Promise<void> {
    const { key: ask } = this.#options;
    if (typeof ask !== "function" || this.#key !== used) return Promise.resolve();
    this.#asking ??= Promise.resolve(ask())
      .then((key) => {
        if (used !== undefined && visitorOf(key) !== visitorOf(used)) throw new InvalidArgument("the new pass is of another visitor: make a new Client");
        this.#key = key;
      })
      .finally(() => (this.#asking = undefined));
    return this.#asking;
  }

  #fetch(call: Call): Promise<Response> {
    const headers: Record<string, string> = {};
    if (call.body !== undefined) headers["content-type"] = "application/json";
    if (this.#key) headers["authorization"] = `Bearer ${this.#key}`;
    const { fetch = globalThis.fetch, timeoutMs = 10_000 } = this.#options;
    return fetch(this.url + call.path, {
      method: call.method,
      headers,
      body: call.body === undefined ? undefined : JSON.stringify(call.body),
      keepalive: call.keepalive ?? false,
      credentials: "omit",
      redirect: "manual",
      signal: AbortSignal.timeout(timeoutMs),
    });
  }

  #read<T>(call: Call, response: Response, text: string): T {
    let found: any;
    try {
      found = JSON.parse(text);
    } catch {}
    if (typeof found !== "object" || found === null) throw this.#noService(call, response);
    const missing = call.fields.find((name) => !(name in found));
    if (missing) {
      throw new UnexpectedAnswer(`${named(call)}: the answer of ${this.url} lacks the field ${missing}; is the service of another version?`);
    }
    return found;
  }

  #refusal(call: Call, response: Response, text: string): Error {
    try {
      const problem = JSON.parse(text);
      if (typeof problem.code === "string") return new (BY_CODE[problem.code] ?? ServiceError)(named(call), response.status, problem);
    } catch {}
    return this.#noService(call, response);
  }

  #noService(call: Call, response: Response): UnexpectedAnswer {
    const there = response.headers.get("location");
    const kind = (response.headers.get("content-type") ?? "nothing").split(";")[0];
    const what = there ? `sends on to ${there}` : `answers ${response.status} with ${kind}`;
    return new UnexpectedAnswer(`${named(call)}: ${this.url} ${what}; is this the address of a Shortlist service?`);
  }

  #broken(call: Call, failure: any): ConnectionFailed {
    if (failure?.name === "TimeoutError") return new TimedOut(`${named(call)}: ${this.url} did not answer in time`, { cause: failure });
    const why = String(failure?.cause?.code ?? failure?.message ?? failure).replace(/\s+/g, " ");
    return new ConnectionFailed(`${named(call)}: ${this.url} cannot be reached, or the connection broke (${why})`, { cause: failure });
  }
}

/** The items, as many together as one request may hold; `first` is the number of the first of them. */
function* batches<T>(items: T[]): Generator<{ first: number; items: T[] }> {
  let first = 0;
  let chars = 0;
  for (let end = 0; end < items.length; end++) {
    const more = JSON.stringify(items[end]).length + 1;
    if (end > first && (end - first === MOST || chars + more > MOST_CHARS)) {
      yield { first, items: items.slice(first, end) };
      first = end;
      chars = 0;
    }
    chars += more;
  }
  if (first < items.length) yield { first, items: items.slice(first) };
}

function pathOf(bandit: string): string {
  if (!IDENTIFIER.test(bandit)) throw new InvalidArgument("bandit must be letters, digits and . _ : - (at most 128)");
  return `/v1/bandits/${bandit}`;
}

/** A decision as a part of a reward: its token, or its event. */
export function itemOf(decision: string | ChoiceEvent): Partial<Reward> {
  return typeof decision === "string" ? { decision } : decision;
}

/** The options. A number or a text in their place has no fields: all options would have their defaults. */
export function checked<T extends object>(options: T, such: string): T {
  const kind = options === null ? "null" : Array.isArray(options) ? "a list" : typeof options;
  if (kind !== "object") throw new InvalidArgument(`options must be an object, such as ${such}, not ${kind}`);
  return options;
}

/** A list; the letters of a text would be sent as its items. */
function listed<T>(name: string, items: T[]): T[] {
  if (!Array.isArray(items)) throw new InvalidArgument(`${name} must be a list, not ${typeof items}`);
  return items;
}

function named(call: Call): string {
  return `${call.method} ${call.path.split("?")[0]}`;
}

export function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
