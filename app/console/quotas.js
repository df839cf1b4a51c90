// Quotas: what is used and left beside the plan, which end, and making, changing and deleting them.

import { list, now, path, send } from "./api.js";
import { boxes, button, code, empty, h, panel, redraw, s, skeleton, table, tile } from "./dom.js";
import { count, duration, NONE, percent, plain, time } from "./format.js";
import { destroy, Form, previewOf } from "./forms.js";
import { filterBuilder } from "./filters.js";
import { titlesOf } from "./measure.js";

const LOOK_MS = 5000;
const MOST = 1000;
const BAR = 120;

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
export function quotas(view, body, bandit) {
  const [note, one] = boxes(2);
  const tiles = h("div", { class: "tiles" });
  const rows = h("div", {}, skeleton());
  const at = path`/v1/bandits/${bandit.id}/quotas`;
  const maker = making(view, bandit, at, () => again());
  body.append(h("div", {}, note, tiles), panel("Quotas", h("p", {}, "The bar is of ", h("em", {}, "most"), ": used, and left; the mark is where an even pace would be by now."), rows), one, maker);
  const again = view.live(LOOK_MS, note, async () => {
    const { items } = await list(at, MOST, view.signal);
    const named = await titlesOf(bandit.catalogue, items.flatMap((quota) => quota.arm ?? []), view.signal);
    const known = items.map((quota) => ({ quota, ...outlook(quota) })).sort((a, b) => a.rank - b.rank || a.quota.id.localeCompare(b.quota.id));
    redraw(tiles, known, () => [
      tile("Used up now", count(known.filter((each) => each.rank === 0).length), known.filter((each) => each.rank === 0).slice(0, 5).map((each) => each.quota.id).join(", ") || "none", known.some((each) => each.rank === 0) ? "bad" : "good"),
      tile("Run out today", count(known.filter((each) => each.today).length), known.filter((each) => each.today).slice(0, 5).map((each) => each.quota.id).join(", ") || "none, at the rate of now"),
      tile("Quotas", count(items.length), `of ${bandit.id}`),
    ]);
    redraw(rows, known, () => (items.length ? table("Quotas", ["quota", "arms", "used", "#left", "window", "forecast", ""], known.map((each) => line(each, named, open)), "", "cards") : empty("None is set. A quota limits how often some arms are shown: campaign 7 at most 10,000 times a day.")));
  });
  const open = (/** @type {any} */ quota) => {
    one.replaceChildren(changing(view, bandit, quota, () => {
      one.textContent = "";
      again();
      /** @type {HTMLElement | undefined} */ ([...rows.querySelectorAll("button")].find((each) => each.getAttribute("aria-label") === `Change ${quota.id}`))?.focus();
    }));
    one.querySelector("input")?.focus();
  };
}

/** What stands with a quota in its window. @param {any} quota @returns {{rank: number, word: string, kind: string, plan: number | null, today: boolean}} */
function outlook(quota) {
  const [from, to] = quota.window ?? [null, null];
  const plan = from !== null && to !== null ? Math.min(1, Math.max(0, (now() - from) / (to - from))) : null;
  if (quota.window === null) return { rank: 3, word: "not in force now", kind: "", plan: null, today: false };
  if (quota.left === 0) return { rank: 0, word: "used up", kind: "bad", plan, today: false };
  const ends = quota.ends === null ? null : Date.parse(quota.ends);
  if (ends === null) return { rank: 2, word: "lasts through this window", kind: "good", plan, today: false };
  const midnight = new Date(now()).setHours(24, 0, 0, 0);
  return { rank: 1, word: `used up in ${duration(Math.max(1, (ends - now()) / 1000))}, ${time(ends)}`, kind: "warn", plan, today: ends < midnight };
}

/** @param {any} each @param {(id: string) => string} named @param {(quota: any) => void} open */
function line({ quota, word, kind, plan }, named, open) {
  const { most, used, left } = quota;
  const to = (/** @type {number} */ value) => (most ? (Math.min(value, most) / most) * BAR : 0);
  const words = `${count(used)} used, ${count(left)} left of ${count(most)}${plan === null ? "" : `; an even pace would be at ${count(Math.round(plan * most))}`}`;
  const bar = s("svg", { viewBox: `0 0 ${BAR} 18`, width: BAR, height: 18, role: "img", "aria-label": words },
    s("rect", { class: "bar left", x: 0, y: 3, width: BAR, height: 12, rx: 2 }), s("rect", { class: "bar policy", x: 0, y: 3, width: to(used), height: 12 }), plan !== null && s("line", { class: "whisker", x1: plan * BAR, x2: plan * BAR, y1: 0, y2: 18 }), s("title", {}, words));
  const window = quota.window === null ? "not now" : quota.window[1] === null ? "forever" : `until ${time(quota.window[1])}`;
  const counts = quota.signal ? `${quota.counts}: ${quota.signal}` : quota.counts;
  return [quota.id, h("span", {}, quota.filter ? code(quota.filter) : named(quota.arm), h("span", { class: "meaning" }, `${counts}, pace ${quota.pace}`)), h("span", {}, bar, `${count(used)}${most ? ` (${percent(used / most, 0)})` : ""}`), `${count(left)} of ${count(most)}`, window, h("span", { class: `tag wrap ${kind}` }, word), button("Change", () => open(quota), { class: "quiet", "aria-label": `Change ${quota.id}` })];
}

/** @param {any} quota the terms that a PUT takes again */
const terms = ({ filter, arm, per_s, counts, signal, from }) => Object.fromEntries(Object.entries({ filter, arm, per_s, counts, signal, from }).filter(([, value]) => value !== null && value !== undefined));

/** @param {import("./main.js").View} view @param {any} bandit @param {any} quota @param {() => void} done */
function changing(view, bandit, quota, done) {
  const at = path`/v1/bandits/${bandit.id}/quotas/${quota.id}`;
  const call = (/** @type {any} */ values) => ({ method: "PUT", path: at, body: { ...terms(quota), ...values } });
  const form = new Form(
    [
      { name: "most", label: "Most in a window", kind: "number", value: String(quota.most) },
      { name: "pace", label: "Pace", kind: "select", options: [["none", "none: as fast as it goes"], ["even", "even: spread over the window"]], value: quota.pace },
      { name: "to", label: "In force until", value: quota.to ?? "", placeholder: "2026-12-31T00:00:00Z" },
    ],
    { submit: `Change ${quota.id}`, changed: () => draw(), act: async (values) => (await send(call(values), view.signal), done()), more: [button("Close", done)] },
  );
  const [shown, draw] = previewOf(form, (values) => [call(values)]);
  return panel(`Quota ${quota.id}`, h("p", { class: "hint" }, "What was counted so far goes on counting. All else is fixed: delete it and make another one, which counts from 0."), form.el, shown, destroy(`Delete ${quota.id}`, quota.id, `Its arms are not limited by it any more, and that ${count(quota.used)} were used is forgotten.`, async () => {
    await send({ method: "DELETE", path: at }, view.signal);
    done();
  }));
}

/** @param {import("./main.js").View} view @param {any} bandit @param {string} at @param {() => void} done */
function making(view, bandit, at, done) {
  const said = h("p", { role: "status" });
  const names = Object.keys(bandit.signals ?? {});
  const call = (/** @type {any} */ { id, ...body }) => ({ method: "PUT", path: `${at}/${encodeURIComponent(id ?? "…")}`, body: { ...body, ...(body.per_s ? { per_s: Number(body.per_s) } : {}) } });
  const form = new Form(
    [
      { name: "id", label: "Name", value: "campaign-7" },
      { name: "most", label: "Most in a window", kind: "number", value: "10000" },
      { name: "per_s", label: "Window", kind: "select", options: [["", "one, without an end"], ["3600", "an hour"], ["86400", "a day"], ["604800", "a week"]], value: "86400" },
      { name: "counts", label: "Counts", kind: "select", options: [["shown", "what is shown"], ["rewarded", "what is rewarded"]] },
      .../** @type {import("./forms.js").Field[]} */ (names.length ? [{ name: "signal", label: "Signal", kind: "select", options: [["", "all of them"], ...names] , hint: "With rewards: which of them count." }] : []),
      { name: "pace", label: "Pace", kind: "select", options: [["none", "none: as fast as it goes"], ["even", "even: spread over the window"]] },
      { name: "arm", label: "One arm", hint: "Its id; or else a filter." },
      { name: "from", label: "In force from", placeholder: "2026-12-01T00:00:00Z" },
      { name: "to", label: "until", placeholder: "2026-12-31T00:00:00Z" },
      { name: "filter", label: "Filter", kind: "json", placeholder: '{"campaign": 7}', hint: "One value of one field: the arms that have it count together." },
    ],
    {
      submit: "Make a quota",
      changed: () => draw(),
      act: async (values) => {
        const made = await send(call(values), view.signal);
        said.textContent = `Made: ${made.id}, ${count(made.left)} left.`;
        done();
      },
    },
  );
  filterBuilder(form, "filter", bandit.catalogue, view.signal, true);
  const [shown, draw] = previewOf(form, (values) => [call(values)]);
  return panel("Make a quota", form.el, said, shown);
}

/** What a key, or a visitor, has had that counts for repeats. @param {any} found of …/exposures @param {(id: string) => string} named */
export function exposures(found, named) {
  const { most, within_s, counts, by } = found.repeats;
  const rows = found.items.map((/** @type {any} */ each) => [each.arm === null ? plain(each.value) : named(each.arm), count(each.count), count(each.left), time(each.last_ms), each.left ? NONE : time(each.until_ms)]);
  return [h("p", {}, `At most ${count(most)} times in ${duration(within_s)}${by === "arm" ? "" : ` of each value of ${by}`}, counted when ${counts}.`), table("Had", [by === "arm" ? "arm" : by, "#times", "#left", "last", "again from"], rows, "Nothing counts now.", "cards")];
}
