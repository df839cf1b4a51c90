// Rewards in the background: none is lost while the page or process lives, and in a page none when it is left.
//
// A reward is kept (in localStorage, in a page) until the service has answered for it, as an item of its own: pages that
// are open side by side write none of the others'. When the page is hidden, what is left goes at once by requests that
// outlive the page. What was not answered for is sent again on the next page: a reward counts once, however often it is
// sent. With passes, the rewards of each visitor are kept apart: no other pass may send them.

import { checked, Client, itemOf, randomId } from "./client.ts";
import { Invalid, InvalidArgument } from "./errors.ts";
import type { ChoiceEvent, Keep, Receipt, Reward, RewardOptions, SenderOptions } from "./types.ts";

// Browsers let all requests that outlive their page have 64 KiB together.
const KEEPALIVE_CHARS = 60_000;

export class RewardSender {
  #client: Client;
  #waiting: Reward[] = [];
  // The names of the items that keep them.
  #names = new Map<Reward, string>();
  #batch: number;
  #buffer: number;
  #everyMs: number;
  #keep: Keep | null;
  #owner: string | undefined; // undefined: it is not known yet whose rewards these are
  #onRejected: (reward: Reward, code: string) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #sending: Promise<void> | undefined;
  // Sent by requests that outlive the page, and not answered for.
  #gone = new Set<Reward>();
  #leave = () => {
    if (document.visibilityState === "hidden") this.#sendBeforeTheEnd();
  };

  constructor(client: Client, options: SenderOptions = {}) {
    const { batch = 100, buffer = 10_000, everyMs = 1000, keep = storage(), onRejected = () => {} } = checked(options, "{ batch: 50 }");
    if (!(batch >= 1 && buffer >= batch)) throw new InvalidArgument("batch must be at least 1, and not more than buffer");
    this.#client = client;
    this.#batch = batch;
    this.#buffer = buffer;
    this.#everyMs = everyMs;
    this.#keep = keep;
    this.#onRejected = onRejected;
    if (client.visitor === undefined) client.identify().then(() => this.#begin(), () => {}); // the next send tells
    else this.#begin();
    globalThis.document?.addEventListener("visibilitychange", this.#leave);
    globalThis.window?.addEventListener("pagehide", this.#sendBeforeTheEnd);
  }

  /** Take over what was kept: where the key is a pass, for its visitor alone. */
  #begin(): void {
    if (this.#owner !== undefined) return;
    const { url, visitor } = this.#client;
    this.#owner = visitor == null ? `shortlist ${url}` : `shortlist ${url} ${visitor}`;
    this.#waiting.unshift(...this.#kept());
    // The list that version 2.0 wrote: it is kept item by item from now on.
    this.#write(this.#owner);
    for (const each of this.#waiting) this.#remember(each);
    if (this.#waiting.length) this.#later(0);
  }

  /** How many rewards the service has not answered for. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Reward a decision soon. Throws InvalidArgument when too many wait: then this one is not taken. */
  add(decision: string | ChoiceEvent, options: Omit<RewardOptions, "wait"> = {}): void {
    const { value = 1, arm, reward_id, signal, at = Date.now() } = checked(options, "{ value: 0 }");
    if (!Number.isFinite(value)) throw new InvalidArgument("value must be a finite number");
    if (this.#waiting.length >= this.#buffer) throw new InvalidArgument(`${this.#buffer} rewards wait already`);
    const reward = { ...itemOf(decision), value, arm, reward_id, signal, at };
    this.#waiting.push(reward);
    this.#remember(reward);
    this.#later(this.#waiting.length >= this.#batch ? 0 : this.#everyMs);
  }

  /** Send all that wait. Rejects with the error of the batch that cannot be sent; it waits on. */
  async flush(): Promise<void> {
    while (this.#waiting.length || this.#sending) await (this.#sending ?? this.#sendOne());
  }

  /** Send all that wait, and end. */
  async close(): Promise<void> {
    globalThis.document?.removeEventListener("visibilitychange", this.#leave);
    globalThis.window?.removeEventListener("pagehide", this.#sendBeforeTheEnd);
    try {
      await this.flush();
    } finally {
      clearTimeout(this.#timer);
    }
  }

  #later(ms: number): void {
    if (this.#timer !== undefined && ms > 0) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      // A failure is tried again; flush tells of it.
      (this.#sending ?? this.#sendOne()).catch(() => {}).then(() => {
        if (this.#waiting.length) this.#later(this.#everyMs);
      });
    }, ms);
  }

  #sendOne(): Promise<void> {
    const batch = this.#waiting.slice(0, this.#batch);
    this.#sending = this.#client
      .rewardBatch(batch)
      .then((receipt) => this.#settle(batch, receipt), (error) => this.#refuse(batch, error))
      .finally(() => (this.#sending = undefined));
    return this.#sending;
  }

  /** The service has answered for these. */
  #settle(batch: Reward[], receipt: Receipt): void {
    this.#forget(new Set(batch));
    for (const { index, code } of receipt.rejected) this.#onRejected(batch[index], code);
  }

  /** Rewards that the error names are rejected, the others stay. */
  #refuse(batch: Reward[], error: unknown): void {
    const places = error instanceof Invalid ? error.errors.map((each) => each.loc[2]) : [];
    const wrong = new Set(places.filter((place) => typeof place === "number").map((place) => batch[place as number]));
    if (!wrong.size) throw error;
    this.#forget(wrong);
    for (const each of wrong) this.#onRejected(each, "invalid");
  }

  #sendBeforeTheEnd = () => {
    const batch: Reward[] = [];
    let chars = 0;
    for (const each of this.#waiting) {
      chars += JSON.stringify(each).length + 1;
      if (chars > KEEPALIVE_CHARS) break; // the rest is kept for the next page
      if (!this.#gone.has(each)) batch.push(each);
    }
    if (!batch.length) return;
    for (const each of batch) this.#gone.add(each);
    this.#client
      .rewardBatch(batch, { keepalive: true })
      .then((receipt) => this.#settle(batch, receipt))
      .catch(() => {}) // they are sent again
      .finally(() => batch.forEach((each) => this.#gone.delete(each)));
  };

  #kept(): Reward[] {
    const keep = this.#keep;
    const names = keep?.key ? Array.from({ length: keep.length! }, (_, at) => keep.key!(at)!) : [this.#owner!];
    const found: Reward[] = [];
    for (const name of names) {
      if (!`${name}\n`.startsWith(`${this.#owner}\n`)) continue;
      // Anybody may have written there.
      try {
        for (const each of [JSON.parse(keep!.getItem(name)!)].flat()) {
          if (typeof (each?.decision ?? each?.event_id) !== "string" || !Number.isFinite(each.value)) continue;
          found.push(each);
          if (name !== this.#owner) this.#names.set(each, name);
        }
      } catch {}
    }
    return found;
  }

  #remember(reward: Reward): void {
    if (this.#owner === undefined || this.#names.has(reward)) return;
    if (!this.#keep?.key) return this.#write(this.#owner, this.#waiting);
    this.#names.set(reward, `${this.#owner}\n${randomId()}`);
    this.#write(this.#names.get(reward), reward);
  }

  /** These wait no longer. */
  #forget(done: Set<Reward>): void {
    this.#waiting = this.#waiting.filter((each) => !done.has(each));
    for (const each of done) {
      this.#write(this.#names.get(each));
      this.#names.delete(each);
    }
    if (!this.#keep?.key) this.#write(this.#owner, this.#waiting.length ? this.#waiting : undefined);
  }

  /** It may be full, or not allowed: then the rewards are in memory alone. */
  #write(name: string | undefined, value?: Reward | Reward[]): void {
    try {
      if (name !== undefined && value) this.#keep?.setItem(name, JSON.stringify(value));
      else if (name !== undefined) this.#keep?.removeItem(name);
    } catch {}
  }
}

function storage(): Keep | null {
  try {
    return globalThis.document ? globalThis.localStorage : null;
  } catch {
    return null;
  }
}
