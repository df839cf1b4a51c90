// Key: one learner, what it knows and how surely, what it was shown, and what it would be shown now.

import { get, path, Problem, query, send } from "./api.js";
import { chart } from "./charts.js";
import { address, empty, h, link, panel, redraw, table, tile } from "./dom.js";
import { count, decimal, number, time } from "./format.js";
import { action, destroy, Form, problemBox } from "./forms.js";
import { widths } from "./linear.js";
import { earned, lastDecisions, names } from "./measure.js";

const LOOK_MS = 3000;
const MOST_DIM = 256;
const SHOWN = 20;
const MOST_BARS = 12;

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  const [name, key] = parts;
  if (!name || !key) {
    const bandits = await names("bandits", signal);
    const form = new Form(
      [
        { name: "bandit", label: "Bandit", kind: "select", options: bandits.map((each) => each.id), value: name },
        { name: "key", label: "Key", hint: "_global: the one learner of a global bandit." },
      ],
      { submit: "Show the learner", act: (values) => view.go(["keys", values.bandit, values.key ?? "_global"]) },
    );
    const rows = bandits.map((each) => [each.scope === "global" ? link(each.id, ["keys", each.id, "_global"]) : link(each.id, ["bandits", each.id, "learners"]), each.scope === "global" ? "one learner" : "a learner for each key"]);
    root.append(panel("Which learner?", bandits.length ? [form.el, table("Bandits", ["bandit", "learners"], rows)] : empty("There is no bandit yet. ", link("Make one on the overview", []), ".")));
    return;
  }
  const bandit = await get(path`/v1/bandits/${name}`, signal);
  const note = h("div", {});
  const tiles = h("div", { class: "tiles" });
  const theta = h("div", {});
  const weights = h("div", {});
  const sure = h("div", {});
  const past = h("div", {});
  root.append(
    h("p", {}, "Key ", h("strong", {}, key), " of ", link(name, ["bandits", name]), ". ", link("Try it", ["try", name], bandit.scope === "per_key" ? { key } : {})),
    h("div", {}, note, tiles),
    h("div", { class: "cols" }, panel("What it has learned", theta), panel("How its certainty grew", sure), weights, wouldShow(view, bandit, key)),
    panel("Last decisions", past),
    panel("Forget", destroy("Forget this learner", key, "What it has learned is gone for good; rewards for its decisions so far are refused.", async () => {
      await send({ method: "DELETE", path: path`/v1/bandits/${name}/learners/${key}` });
      view.go(["bandits", name, "learners"]);
    })),
  );
  /** @type {{x: number, y: number}[]} */
  const certainty = [];
  view.live(LOOK_MS, note, async () => {
    const at = path`/v1/bandits/${name}/learners/${key}`;
    let learner = await get(at, signal);
    const dim = learner.theta.length + (learner.weights?.flat().length ?? 0) + (learner.offset === undefined ? 0 : 1);
    const known = certainty[certainty.length - 1]?.x !== learner.observations || !theta.hasChildNodes();
    if (dim <= MOST_DIM && known) learner = await get(at + query({ include: "precision" }), signal);
    const noise = Math.sqrt(learner.used?.noise ?? 1);
    const wide = learner.precision ? widths(learner.precision).map((width) => width * noise) : [];
    redraw(tiles, [learner.observations, learner.version, learner.used, learner.offset], () => [
      tile("Rewards", count(learner.observations), `version ${count(learner.version)}`),
      tile("Numbers", count(dim), bandit.context ? "of arms, and of arms in contexts" : learner.offset === undefined ? "one for each feature" : "one for each feature, and the offset"),
      learner.offset !== undefined && tile("Offset", number(learner.offset), "expected of every arm, whatever its features"),
      tile("Ridge", number(learner.used?.ridge), "in use"),
      tile("Noise", number(learner.used?.noise), "of a reward, seen"),
      tile("Exploration", number(learner.used?.exploration), "in use"),
    ]);
    if (!known) return;
    const all = learner.theta.map((/** @type {number} */ value, /** @type {number} */ place) => ({ label: learner.columns?.[place] ?? `coordinate ${place + 1}`, value, low: wide[place] === undefined ? undefined : value - 2 * wide[place], high: wide[place] === undefined ? undefined : value + 2 * wide[place] }));
    const bars = [...all].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, MOST_BARS);
    redraw(theta, all, () => [
      chart("bars", { label: "The largest coordinates of theta", unit: "reward for each unit of a feature", spanName: "± 2 widths", bars, none: "It is at the prior." }),
      all.length > bars.length && h("p", { class: "hint" }, `the ${count(bars.length)} largest of ${count(all.length)}`),
      h("details", {}, h("summary", {}, "All of theta"), table("All of theta", ["coordinate", "#value", "#width"], all.slice(0, MOST_DIM).map((/** @type {any} */ each, /** @type {number} */ place) => [learner.columns?.[place] ?? count(place + 1), decimal(each.value, 4), decimal(wide[place], 4)]))),
      wide.length === 0 && h("p", { class: "hint" }, "The widths of so many numbers are not read here."),
    ]);
    if (wide.length) {
      const prior = 1 / Math.sqrt(learner.used?.ridge || 1) * noise;
      if (!certainty.length && learner.observations) certainty.push({ x: 0, y: prior });
      certainty.push({ x: learner.observations, y: wide.reduce((sum, width) => sum + width, 0) / wide.length });
    }
    const series = [{ name: "mean width of a coordinate", kind: "third", points: certainty }];
    redraw(sure, series, () => [chart("lines", { label: "Mean width", unit: "reward for each unit", x: "rewards", least: 0, series, none: "Its widths are not known." }), h("p", { class: "hint" }, "From the prior, at 0 rewards, to now; more points come while this page is open.")]);
    redraw(weights, learner.weights ?? null, () => learner.weights && panel("In contexts", weightTable(learner)));
    await readPast(view, bandit, key, past);
  });
}

/** @param {any} learner */
function weightTable(learner) {
  const columns = learner.context.columns ?? Array.from({ length: learner.context.dim }, (_, place) => `number ${place + 1}`);
  const rows = learner.weights.slice(0, 20).map((/** @type {number[]} */ row, /** @type {number} */ place) => [`direction ${place + 1}`, ...row.slice(0, 20).map((value) => decimal(value))]);
  return [h("p", { class: "hint" }, "What each part of a context adds, along the principal directions of the arms."), table("Context weights", ["", ...columns.slice(0, 20).map((/** @type {string} */ each) => `#${each}`)], rows)];
}

/** @param {import("./main.js").View} view @param {any} bandit @param {string} key @param {HTMLElement} box */
async function readPast(view, bandit, key, box) {
  if (!bandit.log) return redraw(box, "no log", () => empty("This bandit keeps no log of its decisions. ", h("a", { href: address(["bandits", bandit.id, "settings"], { set: "log", to: "{}" }) }, "Keep one"), "."));
  const all = await lastDecisions(bandit.id, bandit.log.keep_s, view.signal);
  const own = (bandit.scope === "per_key" ? all.filter((row) => row.key === key) : all).slice(-SHOWN).reverse();
  return redraw(box, own, () => [table("Last decisions", ["time", "arms", "rewards", "group", ""], own.map((row) => [time(row.time), row.arms.map((/** @type {any} */ arm) => arm.id).join(", "), row.arms.map((/** @type {any} */ arm) => number(earned(row, arm.id))).join(", "), row.group ?? "–", link("explain", ["decisions", bandit.id, row.decision])]), "None among the last 1,000 decisions of the bandit.")]);
}

/** @param {import("./main.js").View} view @param {any} bandit @param {string} key */
function wouldShow(view, bandit, key) {
  const box = h("div", {});
  const context = bandit.context ? (bandit.context.fields ? {} : new Array(bandit.context.dim).fill(0)) : undefined;
  const look = async () => {
    const body = { k: 5, dry_run: true, ...(bandit.scope === "per_key" ? { key } : {}), ...(context === undefined ? {} : { context }) };
    const { arms, group } = await send({ method: "POST", path: path`/v1/bandits/${bandit.id}/choose`, body }, view.signal);
    const bars = arms.map((/** @type {any} */ arm) => ({ label: arm.id, value: arm.estimate, low: arm.estimate - 2 * arm.width, high: arm.estimate + 2 * arm.width, mark: arm.draw ?? undefined, note: number(arm.score) }));
    box.replaceChildren(chart("bars", { label: "What it would be shown now", unit: "expected reward", spanName: "estimate ± 2 widths", markName: bars.some((/** @type {any} */ bar) => bar.mark !== undefined) ? "what was drawn" : undefined, bars }), h("p", { class: "hint" }, `A dry run${group === "holdout" ? ", in the holdout" : ""}: nothing was logged, counted or reserved.${bandit.context ? " In the context of zeros; try it shows others." : ""}`));
  };
  const again = action("Draw again", look);
  look().catch((error) => (view.signal.aborted ? null : box.replaceChildren(error instanceof Problem ? problemBox(error) : empty("Waiting for the service."))));
  return panel("What it would be shown now", box, again);
}
