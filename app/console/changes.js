// What changed: one feed of settings, moves, priors, arms, quotas and traffic, from what the service keeps.

import { get, list, now, path, query } from "./api.js";
import { code, h, panel, redraw, table } from "./dom.js";
import { count, duration, number, plain, time } from "./format.js";
import { read, write } from "./json.js";
import { alarmsOfArms } from "./outcome.js";
import { MEANINGS } from "./settings.js";

const DAY_MS = 86_400_000;
const WEEK_MS = 7 * DAY_MS;
const MOST_VERSIONS = 200;
const MOST_PRIORS = 500;
const MOST_PRECISION = 2_200; // numbers: of some 65 dimensions
const MOST_JOBS = 100;
const MOST_QUOTAS = 200;
const MOST_SHOWN = 300;
const MOST_OF_ARMS = 5; // each takes some 30 rows of the log
const PIECES = 40;
const FACTOR = 2; // by which traffic rises or falls in one piece of time
const SURPRISE = 4; // standard deviations of a count

/** What happened at `ms`; null: not known when. `who`: the name of an API key. @typedef {{ms: number | null, kind: string, what: string, who: string | null, text: any}} Happening */

const KINDS = { "": "everything", settings: "settings", move: "moves", prior: "priors", arms: "arms", quota: "quotas", traffic: "traffic", job: "evaluations", finding: "what needs attention now" };

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
export async function changes(view, body, bandit) {
  const { signal } = view;
  const [summary, rows] = [h("p", {}), h("div", {})];
  const kind = h("select", { value: view.query.get("kind") ?? "", on: { change: () => (view.remember({ kind: kind.value }), draw()) } }, Object.entries(KINDS).map(([name, text]) => h("option", { value: name }, text)));
  /** @type {Happening[]} */
  let all = [];
  const draw = () => {
    const recent = all.filter(({ ms }) => ms && ms > now() - DAY_MS).length;
    const shown = all.filter((each) => !kind.value || each.kind === kind.value);
    summary.textContent = `${recent ? count(recent) : "Nothing"} in the last 24 hours.`;
    redraw(rows, shown.map(({ ms, what, who }) => [ms, what, who]), () => [
      table("Changes", ["when", "what", "who", "how"], shown.slice(0, MOST_SHOWN).map(({ ms, what, who, text }) => [ms ? time(ms) : "not known", what, who ?? "–", text]), "Nothing of this kind is kept.", "cards"),
      shown.length > MOST_SHOWN && h("p", { class: "hint" }, `The newest ${count(MOST_SHOWN)} of ${count(shown.length)}.`),
    ]);
  };
  const take = (/** @type {Happening[]} */ found) => {
    all = [...all, ...found].sort((a, b) => (b.ms ?? 0) - (a.ms ?? 0));
    draw();
  };
  body.append(
    panel("What changed", summary, h("label", { class: "inline" }, "Show ", kind), rows, h("p", { class: "hint" }, "Who: the name of the API key. Without keys, and of changes before names were kept, it is not known. Arms and traffic are those that the log tells of, of the last week at most.")),
  );
  const sources = [findingsOf, settingsOf, priorsOf, quotasOf, jobsOf, ...(bandit.log ? [armsOf, trafficOf] : [])];
  // What reads the log takes longest: the rest is shown before.
  await Promise.all(sources.map(async (source) => take(await source(bandit, signal))));
}

/** @param {any} bandit @param {AbortSignal} signal @returns {Promise<Happening[]>} */
async function settingsOf(bandit, signal) {
  const { items } = await list(path`/v1/bandits/${bandit.id}/versions`, MOST_VERSIONS, signal, read);
  return items.map((version, place) => {
    const before = items[place + 1];
    const changed = before ? Object.keys(MEANINGS).filter((name) => write(before[name]) !== write(version[name])) : [];
    const text = changed.map((name) => h("div", {}, name === "catalogue" ? "moved: " : `${name}: `, code(before[name]), " → ", code(version[name])));
    return { ms: version.since_ms ? Number(version.since_ms) : null, kind: changed.includes("catalogue") ? "move" : "settings", what: `version ${count(version.version)}`, who: version.by ?? null, text: before ? text : "made, or older versions are gone" };
  });
}

/** What needs attention now. @param {any} bandit @param {AbortSignal} signal @returns {Promise<Happening[]>} */
async function findingsOf(bandit, signal) {
  return (await alarmsOfArms(bandit, signal)).map((text) => ({ ms: now(), kind: "finding", what: "needs attention", who: "the service", text }));
}

/** The versions of the learned prior that are kept; of long ones, which would be megabytes, the newest. @param {any} bandit @param {AbortSignal} signal @returns {Promise<Happening[]>} */
async function priorsOf(bandit, signal) {
  const at = path`/v1/bandits/${bandit.id}/log/priors`;
  const [oldest] = bandit.prior === "learned" ? (await get(`${at}?limit=1`, signal)).items : [];
  if (!oldest) return [];
  const isLong = (oldest.precision?.length ?? 0) > MOST_PRECISION;
  const items = isLong ? [await get(path`/v1/bandits/${bandit.id}/prior`, signal)] : (await list(at, MOST_PRIORS, signal)).items;
  return items.map(({ version, since_ms: ms, observations, keys }) => ({ ms, kind: "prior", what: `prior ${count(version)}`, who: "the service", text: `fitted from ${count(observations)} rewards of ${count(keys)} keys` }));
}

/** When quotas began, ran out or ended. @param {any} bandit @param {AbortSignal} signal @returns {Promise<Happening[]>} */
async function quotasOf(bandit, signal) {
  const { items } = await list(path`/v1/bandits/${bandit.id}/quotas`, MOST_QUOTAS, signal);
  return items.flatMap(({ id, most, used, left, window, from, to }) => {
    const told = (/** @type {number} */ ms, /** @type {string} */ text) => ({ ms, kind: "quota", what: `quota ${id}`, who: null, text });
    const end = to && Date.parse(to);
    return [
      ...(from && Date.parse(from) <= now() ? [told(Date.parse(from), `began: at most ${count(most)}`)] : []),
      ...(left === 0 ? [{ ...told(window[0], `used up: ${count(used)} of ${count(most)} in the window that began then`) }] : []),
      ...(end && end <= now() ? [told(end, "ended")] : []),
    ];
  });
}

/** Evaluations that are kept. @param {any} bandit @param {AbortSignal} signal @returns {Promise<Happening[]>} */
async function jobsOf(bandit, signal) {
  const { items } = await list(path`/v1/bandits/${bandit.id}/evaluations`, MOST_JOBS, signal);
  return items.map(({ created, state, error }) => ({ ms: created, kind: "job", what: "evaluation", who: null, text: error ? `${state}: ${error}` : state }));
}

/**
 * When the arms of the catalogue changed, the newest first: rows of the log name its version, and halving the time between two that
 * differ finds the first decision. @param {any} bandit @param {AbortSignal} signal @returns {Promise<Happening[]>}
 */
async function armsOf(bandit, signal) {
  const row = async (/** @type {Record<string, unknown>} */ fields) => (await get(path`/v1/bandits/${bandit.id}/log` + query({ limit: 1, ...fields }), signal)).items[0];
  const { items: versions } = await list(path`/v1/bandits/${bandit.id}/versions`, MOST_VERSIONS, signal);
  const moved = versions.findIndex(({ catalogue }) => catalogue !== bandit.catalogue); // versions of another catalogue are other numbers
  const since = Math.max(now() - WEEK_MS, moved > 0 ? versions[moved - 1].since_ms : 0);
  const oldest = await row({ from: Math.floor(since) });
  let newest = await row({ order: "desc" });
  /** @type {Happening[]} */
  const found = [];
  while (oldest && newest?.time >= oldest.time && found.length < MOST_OF_ARMS && newest.catalogue_version !== oldest.catalogue_version) {
    let [low, high, seen] = [oldest.time, newest.time, newest.time];
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      const own = await row({ from: middle });
      if (own.catalogue_version !== newest.catalogue_version) low = middle;
      else [high, seen] = [middle, own.time];
    }
    const before = await row({ order: "desc", to: high });
    found.push({ ms: seen, kind: "arms", what: `arms of ${bandit.catalogue}`, who: null, text: `version ${plain(before.catalogue_version)} → ${plain(newest.catalogue_version)}, as decisions from then on say: arms were added, changed or deleted` });
    if (before.catalogue_version === newest.catalogue_version) break; // two of one millisecond
    newest = before;
  }
  return found;
}

/** When traffic rose or fell by far, began or ended. @param {any} bandit @param {AbortSignal} signal @returns {Promise<Happening[]>} */
async function trafficOf(bandit, signal) {
  const at = path`/v1/bandits/${bandit.id}`;
  const [oldest, newest] = await Promise.all([get(`${at}/log${query({ from: Math.floor(now() - WEEK_MS), limit: 1 })}`, signal), get(`${at}/log?order=desc&limit=1`, signal)]).then((pages) => pages.map(({ items }) => items[0]));
  if (!oldest || !newest) return [];
  const span = newest.time + 1 - oldest.time;
  // Days are compared with days: else each evening would be told.
  const piece = span > 2 * DAY_MS ? DAY_MS : Math.max(1000, Math.ceil(span / PIECES / 1000) * 1000);
  const { buckets } = await get(`${at}/report${query({ from: oldest.time, to: newest.time + 1, bucket_s: piece / 1000 })}`, signal);
  const counts = buckets.map((/** @type {any} */ each) => ({ ms: each.from, n: each.groups.reduce((/** @type {number} */ sum, /** @type {any} */ own) => sum + own.decisions, 0) }));
  const whole = counts.slice(1, -1); // the first and the last piece are not whole
  const told = (/** @type {number} */ ms, /** @type {string} */ text) => ({ ms, kind: "traffic", what: "traffic", who: null, text });
  const found = [told(oldest.time, "the first decision of the last week, as far as the log is kept")];
  for (let place = 1; place < whole.length; place++) {
    const [before, own] = [whole[place - 1], whole[place]];
    const [low, high] = [Math.min(before.n, own.n), Math.max(before.n, own.n)];
    if (high - low <= SURPRISE * Math.sqrt(high) || high < FACTOR * low) continue;
    found.push(told(own.ms, `${own.n > before.n ? "rose" : "fell"} from ${count(before.n)} to ${count(own.n)} decisions in ${duration(piece / 1000)}${low ? `: ${number(own.n / before.n, 2)} times as many` : ""}`));
  }
  return found;
}
