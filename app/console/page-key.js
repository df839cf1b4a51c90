// Key: one learner, what it knows and how surely, what it was shown, and what it would be shown now.

import { get, path, Problem, query, send } from "./api.js";
import { chart } from "./charts.js";
import { address, boxes, empty, h, link, panel, redraw, skeleton, table, tile } from "./dom.js";
import { count, decimal, number } from "./format.js";
import { action, deletion, Form, problemBox } from "./forms.js";
import { widths } from "./linear.js";
import { chooseOne, columnNames, decisionsOf, lastDecisions, titlesOf } from "./measure.js";
import { decisionCards } from "./page-decision.js";
import { exposures } from "./quotas.js";

const LOOK_MS = 3000;
const MOST_DIM = 256;
const SHOWN = 20;
const MOST_BARS = 12;

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  const [name, key] = parts;
  if (!name) return chooseOne(view, "keys", "bandits", ["learners"], (each) => [each.scope === "global" ? "one learner" : "a learner for each key"]);
  const bandit = await get(path`/v1/bandits/${name}`, signal);
  if (!key) return location.replace(address(bandit.scope === "global" ? ["keys", name, "_global"] : ["bandits", name, "learners"]));
  const [note, theta, weights, had] = boxes(4);
  const tiles = h("div", { class: "tiles" });
  const past = h("div", {}, skeleton());
  theta.append(skeleton(6));
  tiles.append(skeleton(2));
  root.append(
    h("p", {}, "Key ", h("strong", {}, key), " of ", link(name, ["bandits", name]), ". ", link("Try it", ["try", name], bandit.scope === "per_key" ? { key } : {})),
    h("div", {}, note, tiles),
    h("div", { class: "cols" }, panel("What it has learned", theta), weights, wouldShow(view, bandit, key)),
    bandit.repeats ? panel(bandit.scope === "global" ? "What a visitor has had" : "What it has had", had) : "",
    panel(bandit.scope === "global" ? "Last decisions" : "Last decisions for this key", past),
    panel("Forget", deletion(view, key, path`/v1/bandits/${name}/learners/${key}`, "Gone for good with it: what it has learned from its rewards, and what it was shown that counts for repeats. Rewards for its decisions so far are refused; the rows of the log stay.", ["bandits", name, "learners"], "Forget this learner")),
  );
  let seen = -1;
  if (bandit.repeats && bandit.scope === "global") had.append(visitorForm(view, bandit));
  const columns = columnNames(bandit.catalogue, signal);
  view.live(LOOK_MS, note, async () => {
    const at = path`/v1/bandits/${name}/learners/${key}`;
    let learner = await get(at, signal);
    const dim = learner.theta.length + (learner.weights?.flat().length ?? 0) + (learner.offset === undefined ? 0 : 1);
    const known = seen !== learner.observations;
    if (dim <= MOST_DIM && known) learner = await get(at + query({ include: "precision" }), signal);
    const noise = Math.sqrt(learner.used?.noise ?? 1);
    const wide = learner.precision ? widths(learner.precision).map((width) => width * noise) : [];
    redraw(tiles, [learner.observations, learner.version, learner.used, learner.offset], () => [
      tile("Rewards", count(learner.observations), `version ${count(learner.version)}`),
      tile("Numbers", count(dim), bandit.context ? "of arms, and of arms in contexts" : `one for each feature${bandit.match ? ", those of match" : ""}${learner.offset === undefined ? "" : ", and the offset"}`),
      learner.offset !== undefined && tile("Offset", number(learner.offset), "expected of every arm, whatever its features"),
      tile("Ridge", number(learner.used?.ridge), "in use"),
      tile("Noise", number(learner.used?.noise), "of a reward, seen"),
      tile("Exploration", number(learner.used?.exploration), "in use"),
    ]);
    if (bandit.repeats && bandit.scope === "per_key") await showHad(view, bandit, key, had);
    if (!known) return;
    seen = learner.observations;
    const columnOf = await columns;
    const all = learner.theta.map((/** @type {number} */ value, /** @type {number} */ place) => ({ label: learner.columns ? columnOf(learner.columns[place]) : `coordinate ${place + 1}`, value, low: wide[place] === undefined ? undefined : value - 2 * wide[place], high: wide[place] === undefined ? undefined : value + 2 * wide[place] }));
    const bars = [...all].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST_BARS);
    redraw(theta, all, () => [
      chart("bars", { label: "The largest coordinates of theta", unit: "reward for each unit of a feature", spanName: "± 2 widths", bars, none: "It is at the prior." }),
      all.length > bars.length && h("p", { class: "hint" }, `the ${count(bars.length)} largest of ${count(all.length)}`),
      h("details", {}, h("summary", {}, "All of theta"), table("All of theta", ["coordinate", "#value", "#width"], all.slice(0, MOST_DIM).map((/** @type {any} */ each, /** @type {number} */ place) => [learner.columns ? each.label : count(place + 1), decimal(each.value, 4), decimal(wide[place], 4)]))),
      wide.length === 0 && h("p", { class: "hint" }, "The widths of that many numbers are not read here."),
    ]);
    redraw(weights, learner.weights ?? null, () => learner.weights && panel("In contexts", weightTable(learner)));
    await readPast(view, bandit, key, past);
  });
}

/** @param {any} learner */
function weightTable(learner) {
  const columns = learner.context.columns ?? Array.from({ length: learner.context.dim }, (_, place) => `number ${place + 1}`);
  const rows = learner.weights.slice(0, 20).map((/** @type {number[]} */ row, /** @type {number} */ place) => [`direction ${place + 1}`, ...row.slice(0, 20).map((value) => decimal(value))]);
  return [h("p", { class: "hint" }, "What each part of a context adds, along the principal directions of the arms."), table("Context weights", ["", ...columns.slice(0, 20).map((/** @type {string} */ each) => `#${each}`)], rows, "", "cards flow")];
}

/** What a key or a visitor has had. @param {import("./main.js").View} view @param {any} bandit @param {string} key @param {HTMLElement} box */
async function showHad(view, bandit, key, box) {
  const found = await get(path`/v1/bandits/${bandit.id}/learners/${key}/exposures`, view.signal);
  const named = await titlesOf(bandit.catalogue, found.items.flatMap((/** @type {any} */ each) => each.arm ?? []), view.signal);
  redraw(box, found, () => exposures(found, named));
}

/** The exposures of a visitor of a global bandit. @param {import("./main.js").View} view @param {any} bandit */
function visitorForm(view, bandit) {
  const box = h("div", { "aria-live": "polite" });
  const form = new Form([{ name: "visitor", label: "Visitor", hint: "As choices name it." }], { submit: "Show what it has had", act: async ({ visitor }) => void (await showHad(view, bandit, visitor ?? "-", box)) });
  return h("div", {}, form.el, box);
}

/** @param {import("./main.js").View} view @param {any} bandit @param {string} key @param {HTMLElement} box */
async function readPast(view, bandit, key, box) {
  if (!bandit.log) return redraw(box, "no log", () => empty("This bandit keeps no log of its decisions. ", h("a", { href: address(["bandits", bandit.id, "settings"], { set: "log", to: "{}" }) }, "Keep one"), "."));
  const { rows, read, isAll } = bandit.scope === "per_key" ? await decisionsOf(bandit.id, key, SHOWN, view.signal) : { rows: (await lastDecisions(bandit.id, view.signal, SHOWN)).reverse(), read: SHOWN, isAll: false };
  const named = await titlesOf(bandit.catalogue, rows.flatMap((row) => row.arms.map((/** @type {any} */ arm) => arm.id)), view.signal);
  const found = isAll || rows.length === SHOWN ? "" : `Those among the last ${count(read)} decisions of the bandit. `;
  return redraw(box, rows, () => [decisionCards(bandit, rows, named, "Last decisions"), h("p", { class: "hint" }, found, rows.length === SHOWN ? `The last ${count(SHOWN)}.` : "")]);
}

/** @param {import("./main.js").View} view @param {any} bandit @param {string} key */
function wouldShow(view, bandit, key) {
  const box = h("div", {});
  const context = bandit.context ? (bandit.context.fields ? {} : new Array(bandit.context.dim).fill(0)) : undefined;
  const look = async () => {
    const body = { k: 5, dry_run: true, ...(bandit.scope === "per_key" ? { key } : {}), ...(context === undefined ? {} : { context }) };
    const { arms, group } = await send({ method: "POST", path: path`/v1/bandits/${bandit.id}/choose`, body }, view.signal);
    const named = await titlesOf(bandit.catalogue, arms.map((/** @type {any} */ arm) => arm.id), view.signal);
    const bars = arms.map((/** @type {any} */ arm) => ({ label: named(arm.id), value: arm.estimate, low: arm.estimate - 2 * arm.width, high: arm.estimate + 2 * arm.width, mark: arm.draw ?? undefined, note: number(arm.score) }));
    box.replaceChildren(chart("bars", { label: "What it would be shown now", unit: "expected reward", spanName: "estimate ± 2 widths", markName: bars.some((/** @type {any} */ bar) => bar.mark !== undefined) ? "what was drawn" : undefined, bars }), h("p", { class: "hint" }, `A dry run${group === "holdout" ? ", in the holdout" : ""}: nothing was logged, counted or reserved.${bandit.context ? " In the context of zeros; try it shows others." : ""}`));
  };
  const again = action("Draw again", look);
  look().catch((error) => (view.signal.aborted ? null : box.replaceChildren(error instanceof Problem ? problemBox(error) : empty("Waiting for the service."))));
  return panel("What it would be shown now", box, again);
}
