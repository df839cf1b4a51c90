// What the keys of a bandit have in common, and where they differ: its prior, and the effects of arms for all of them.

import { get, path, query, send } from "./api.js";
import { chart } from "./charts.js";
import { boxes, empty, h, link, panel, redraw, table, tile } from "./dom.js";
import { count, decimal, duration, number, percent, signed, time } from "./format.js";
import { action } from "./forms.js";
import { columnNames, pictureOf, titleIn } from "./measure.js";

const [LOOK_MS, MOST_BARS, MOST_ROWS, MOST_ARMS] = [10_000, 12, 256, 10];
const SIDES = { largest: "Which arms do better than they look", smallest: "Which arms do worse than they look" };

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
export function prior(view, body, bandit) {
  const { signal } = view;
  const at = path`/v1/bandits/${bandit.id}/prior`;
  const [note, common, apart] = boxes(3);
  const [tiles, sides, both] = [h("div", { class: "tiles" }), h("div", { class: "cols" }), h("div", { class: "cols" })];
  let [columns, drawn] = [/** @type {string[] | undefined} */ (undefined), -1]; // drawn: the version of the effects of arms
  const draw = (/** @type {any} */ now) => {
    redraw(tiles, now, () => [
      tile("Version", count(now.version), now.version ? `since ${time(now.since_ms)}` : "none yet: fewer than five keys have rewards, or all of these are 0"),
      tile("Keys", count(now.keys), now.history ? `of which ${count(now.history)} are of the history` : "that it was fitted from"),
      tile("Rewards", count(now.observations), "of these keys"),
      tile("Noise", number(now.noise), "of a reward, for every key"),
    ]);
    const all = (now.mean ?? []).map((/** @type {number} */ value, /** @type {number} */ place) => ({ label: columns?.[place] ?? `coordinate ${place + 1}`, value, low: value - 2 * now.sd[place], high: value + 2 * now.sd[place], sd: now.sd[place] }));
    redraw(common, [now.version, all], () => (all.length ? shared(all) : empty(now.history ? "Not shown of one to nine own keys beside the history: it would be nearly what one of them likes." : "What so few keys have in common is not shown: it would be nearly what one of them likes.")));
    redraw(apart, [now.version, all], () => (all.length ? differences(all) : empty("Nothing is known of it yet.")));
  };
  body.append(
    h("div", {}, note, tiles),
    h("div", { class: "cols" }, panel("What people have in common", common), panel("Where people differ", apart)),
    sides,
    both,
    panel("Fit it now", h("p", { class: "hint" }, "The service does this by itself after a tenth as many rewards more, an hour after the first of them, and when a key was forgotten."), action("Fit it now", async () => draw(await send({ method: "POST", path: `${at}/refresh` }, signal)))),
  );
  view.live(LOOK_MS, note, async () => {
    // A learner of anybody names the numbers of match too.
    const named = bandit.match ? path`/v1/bandits/${bandit.id}/learners/anybody` : path`/v1/catalogues/${bandit.catalogue}`;
    columns ??= (await get(named, signal)).columns?.map(await columnNames(bandit.catalogue, signal));
    draw(await get(at, signal));
    const { version, ...learned } = bandit.arm_effects === "auto" ? await get(path`/v1/bandits/${bandit.id}/arm-effects` + "?limit=1", signal) : { version: drawn, places: null, ages: [] };
    redraw(both, [learned.places, learned.places_note, learned.ages], () => [...looks(bandit, learned), ...ages(learned)]);
    if (version !== drawn) sides.replaceChildren(await side(bandit, "largest", signal), await side(bandit, "smallest", signal));
    drawn = version;
  });
}

/** Arms of the largest or smallest effect. @param {any} bandit @param {"largest" | "smallest"} order @param {AbortSignal} signal */
async function side(bandit, order, signal) {
  const [catalogue, { items }] = await Promise.all([get(path`/v1/catalogues/${bandit.catalogue}`, signal), get(path`/v1/bandits/${bandit.id}/arm-effects` + query({ order, limit: MOST_ARMS }), signal)]);
  const rows = items.filter((/** @type {any} */ { effect }) => (order === "largest" ? effect > 0 : effect < 0)).map(async (/** @type {any} */ each) => {
    const arm = await get(path`/v1/catalogues/${catalogue.id}/arms/${each.arm}`, signal).catch(() => ({ id: each.arm, metadata: {} })); // it may be deleted
    return [h("span", {}, pictureOf(catalogue, arm, "thumb"), link(titleIn(arm, catalogue.display?.title), ["catalogues", catalogue.id], { arm: arm.id })), signed(each.effect), number(each.sd, 2), count(Math.round(each.weight))];
  });
  return panel(SIDES[order], table(SIDES[order], ["arm", "#reward beyond its features", "#uncertain by", "#rewards"], await Promise.all(rows), "None is known yet.", "cards"));
}

/** How often each place of a list is looked at: learned, stated, or why that is not known; nothing where places are all alike. @param {any} bandit @param {any} learned */
function looks({ position }, { places, places_note: why }) {
  const shown = position === "auto" ? places ?? [] : position?.examination ?? [];
  if (position !== "auto" && !shown.length) return [];
  const rows = shown.map((/** @type {number} */ p, /** @type {number} */ place) => [count(place + 1) + (place && place === shown.length - 1 ? " and below" : ""), percent(p, 0)]);
  const said = position === "auto" ? "By those who look at the first one: learned from the lists of everybody." : "As the setting position states it.";
  return [panel("How often a place of a list is looked at", rows.length ? h("p", { class: "hint" }, said) : "", table("Places of a list", ["place", "#looked at"], rows, `Not learned: ${why ?? "all lists had one arm"}.`))];
}

/** @param {any} learned */
function ages({ ages: all }) {
  if (!all.some((/** @type {any} */ { effect }) => effect)) return [];
  const rows = all.map((/** @type {any} */ { from_s, effect, sd }) => [from_s ? duration(from_s) : "0 min", signed(effect), number(sd, 2)]);
  return [panel("What the age of an arm adds", h("p", { class: "hint" }, "To a reward, beside the arm itself: the same for all arms and keys, learned from everybody."), table("Ages of arms", ["from an age of", "#reward more or less", "#uncertain by"], rows))];
}

/** @param {any[]} all */
function shared(all) {
  const bars = [...all].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST_BARS);
  return [
    chart("bars", { label: "The largest coordinates of the mean", unit: "reward for each unit of a feature", spanName: "most keys", bars }),
    h("p", { class: "hint" }, "A new key starts from this. ", all.length > bars.length ? `The ${count(bars.length)} largest of ${count(all.length)}.` : ""),
    h("details", {}, h("summary", {}, "All of it"), table("All of it", ["coordinate", "#mean", "#differs by"], all.slice(0, MOST_ROWS).map((each) => [each.label, decimal(each.value, 4), decimal(each.sd, 4)]))),
  ];
}

/** @param {any[]} all */
function differences(all) {
  const bars = [...all].sort((a, b) => b.sd - a.sd).slice(0, MOST_BARS).map((each) => ({ label: each.label, value: each.sd, kind: "third" }));
  return [
    chart("bars", { label: "In which coordinates keys differ most", unit: "standard deviation between keys", bars }),
    h("p", { class: "hint" }, "Here a new key is tried out first. What one key knows is on ", link("its own page", ["keys"]), "."),
  ];
}
