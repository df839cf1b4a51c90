// The calls: the public REST API, with the key that was typed in, which is kept in memory alone.

import { readValues, write } from "./json.js";

/** @typedef {{method: string, path: string, body?: any, headers?: Record<string, string>}} Call */
/** @typedef {{items: any[], next: string | null}} Page */

const BASE = new URL("../", import.meta.url);
const PROBE_MS = 700;

/** Tells of "away", "back", "key" (one is needed), "access" (whether it is taken has changed) and "entered". */
export const news = new EventTarget();

let key = "";
let away = false;
let refused = false;
let aheadMs = 0;

/** An error that the service told, in its words. */
export class Problem extends Error {
  /** @param {{status: number, code?: string, title?: string, detail?: string, errors?: {loc: (string | number)[], message: string}[]}} told */
  constructor(told) {
    super(told.detail || told.title || `status ${told.status}`);
    this.status = told.status;
    this.code = told.code ?? "";
    this.title = told.title ?? "";
    this.errors = told.errors ?? [];
  }
}

/** The service does not answer. */
export class Away extends Error {}

/** Where the service is, without a slash at the end. */
export const origin = BASE.href.replace(/\/$/, "");

/** @param {string} text */
export function enterKey(text) {
  key = text.trim();
  news.dispatchEvent(new Event("entered"));
}

/** What the clock of the service shows, in ms, to about a second. */
export const now = () => Date.now() + aheadMs;

export const hasKey = () => key !== "";
export const isAway = () => away;
export const isRefused = () => refused;

/** @param {boolean} now whether the key is refused */
function access(now) {
  if (now === refused) return;
  refused = now;
  news.dispatchEvent(new Event("access"));
}

/** Names as parts of a path. @param {TemplateStringsArray} texts @param {...(string | number)} names */
export function path(texts, ...names) {
  return texts.reduce((result, text, place) => result + encodeURIComponent(names[place - 1]) + text);
}

/** @param {Record<string, unknown>} fields */
export function query(fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : "";
}

/** The answer of a call, null where it has no body. Throws Problem, Away, and AbortError. @param {Call} call @param {AbortSignal} [signal] @param {(text: string) => any} [reader] of JSON @returns {Promise<any>} */
export const send = async (call, signal, reader) => (await ask(call, signal, reader)).answer;

/** The same with the headers of the answer. @param {Call} call @param {AbortSignal} [signal] @param {(text: string) => any} [reader] */
export async function ask(call, signal, reader = readValues) {
  /** @type {Record<string, string>} */
  const headers = { ...call.headers };
  if (key) headers.authorization = `Bearer ${key}`;
  const binary = call.body instanceof Blob;
  if (call.body !== undefined && !binary) headers["content-type"] = "application/json";
  const body = binary || call.body === undefined ? call.body : write(call.body);
  let response, text;
  try {
    response = await fetch(new URL(call.path.slice(1), BASE), { method: call.method, headers, body, signal, cache: "no-store" });
    text = await response.text();
    const ahead = Date.parse(response.headers.get("date") ?? "") + 500 - Date.now();
    if (Math.abs(ahead - aheadMs) > 2000) aheadMs = ahead;
  } catch (error) {
    if (signal?.aborted) throw error;
    leave();
    throw new Away("the service does not answer");
  }
  const isJson = /json/.test(response.headers.get("content-type") ?? "");
  const answer = text && isJson ? reader(text) : text || null;
  if (response.status === 401) access(true);
  else if (response.status < 500 && call.path !== "/healthz" && call.path !== "/readyz") access(false);
  if (response.ok) return { answer, headers: response.headers, status: response.status };
  const problem = new Problem(isJson ? answer : { status: response.status, title: response.statusText });
  if (problem.status === 401) news.dispatchEvent(new Event("key"));
  throw problem;
}

/** @param {string} path @param {AbortSignal} [signal] @param {(text: string) => any} [reader] */
export const get = (path, signal, reader) => send({ method: "GET", path }, signal, reader);

/** The items of a list, page by page, up to a number. @param {string} path @param {number} most @param {AbortSignal} [signal] @param {(text: string) => any} [reader] @returns {Promise<Page>} */
export async function list(path, most, signal, reader) {
  /** @type {any[]} */
  const items = [];
  let next = null;
  do {
    const limit = Math.min(1000, most - items.length);
    const page = await get(`${path}${path.includes("?") ? "&" : "?"}${query({ limit, cursor: next }).slice(1)}`, signal, reader);
    items.push(...page.items);
    next = page.next;
  } while (next && items.length < most);
  return { items, next };
}

/** Look again and again until it answers. */
async function leave() {
  if (away) return;
  away = true;
  news.dispatchEvent(new Event("away"));
  for (;;) {
    await new Promise((done) => setTimeout(done, PROBE_MS));
    try {
      if ((await fetch(new URL("healthz", BASE), { cache: "no-store" })).ok) break;
    } catch {
      // not yet
    }
  }
  away = false;
  news.dispatchEvent(new Event("back"));
}

/** Counters and gauges of /metrics. */
export class Metrics {
  /** @param {string} text */
  constructor(text) {
    /** @type {{name: string, labels: Record<string, string>, value: number}[]} */
    this.samples = [];
    for (const line of text.split("\n")) {
      const found = /^([a-zA-Z_:]\w*)(?:\{(.*)\})? (\S+)/.exec(line);
      if (!found) continue;
      const labels = Object.fromEntries([...(found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name, value]));
      this.samples.push({ name: found[1], labels, value: found[3] === "+Inf" ? Infinity : Number(found[3]) });
    }
  }

  /** The sum of all samples of a name that have these labels; NaN without any. @param {string} name @param {Record<string, string | RegExp>} [labels] */
  sum(name, labels = {}) {
    const fitting = this.find(name, labels);
    return fitting.length ? fitting.reduce((sum, sample) => sum + sample.value, 0) : NaN;
  }

  /** @param {string} name @param {Record<string, string | RegExp>} [labels] */
  find(name, labels = {}) {
    const wanted = Object.entries(labels);
    return this.samples.filter(
      (sample) =>
        sample.name === name &&
        wanted.every(([label, value]) => (value instanceof RegExp ? value.test(sample.labels[label]) : sample.labels[label] === value)),
    );
  }
}
