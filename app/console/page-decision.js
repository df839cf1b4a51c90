// Decision: why these arms, and what would have been shown otherwise.

import { get, path, send } from "./api.js";
import { chart } from "./charts.js";
import { code, empty, facts, h, link, panel, table } from "./dom.js";
import { count, decimal, NONE, number, percent, time } from "./format.js";
import { Form, preview } from "./forms.js";
import { chooseOne, columnNames, earned, lastDecisions, titlesOf } from "./measure.js";

const SHOWN = 50;
const MOST_BARS = 30;

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  const [name, token] = parts;
  if (!name) return chooseOne(view, "decisions", "bandits", ["keeps a log"], (each) => [each.log ? "yes" : "no"]);
  const bandit = await get(path`/v1/bandits/${name}`, signal);
  if (token) return explain(view, bandit, token);
  const rows = bandit.log ? (await lastDecisions(name, signal, SHOWN)).reverse() : [];
  const named = await titlesOf(bandit.catalogue, rows.flatMap((row) => row.arms.map((/** @type {any} */ arm) => arm.id)), signal);
  const byKey = new Form([{ name: "key", label: "Key", hint: "Whose decisions." }], { submit: "Show its decisions", act: ({ key }) => view.go(["keys", name, key ?? ""]) });
  const form = new Form([{ name: "decision", label: "Decision", kind: "area", hint: "The token that the choice came with, or its id in the list above." }], { submit: "Explain it", act: ({ decision }) => view.go(["decisions", name, decision ?? ""]) });
  return root.append(panel("The last decisions", rows.length || bandit.log ? decisionCards(bandit, rows, named, "The last decisions") : empty("This bandit keeps no log of its decisions.")), h("div", { class: "cols" }, bandit.scope === "per_key" && panel("Of one key", byKey.el), panel("A decision", form.el)));
}

/** Decisions as a table, and as cards on a phone. @param {any} bandit @param {any[]} rows @param {(id: string) => string} named @param {string} label */
export function decisionCards(bandit, rows, named, label) {
  const lines = rows.map((row) => [
    time(row.time),
    row.key ? link(row.key, ["keys", bandit.id, row.key]) : NONE,
    row.arms.map((/** @type {any} */ arm) => named(arm.id)).join(", "),
    row.arms.map((/** @type {any} */ arm) => number(earned(row, arm.id))).join(", "),
    row.group ?? NONE,
    link("explain", ["decisions", bandit.id, row.decision]),
  ]);
  return table(label, ["time", "key", "arms", "rewards", "group", ""], lines, "No decision is in the log yet.", "cards");
}

/** @param {import("./main.js").View} view @param {any} bandit @param {string} token */
async function explain(view, bandit, token) {
  const call = { method: "POST", path: path`/v1/bandits/${bandit.id}/log/explain`, body: { decision: token } };
  const { row, asked, seeded, changed, repeated, candidates } = await send(call, view.signal);
  const numbers = row.context && (await get(path`/v1/bandits/${bandit.id}/learners/${row.key ?? "_global"}`, view.signal).then((learner) => learner.context?.columns, () => null)); // none where it is forgotten, or not for this API key
  const named = await titlesOf(bandit.catalogue, [...[...row.arms, ...candidates.slice(0, MOST_BARS)].map((/** @type {any} */ arm) => arm.id), ...candidates.flatMap((/** @type {any} */ each) => (each.because ?? []).map((/** @type {any} */ reason) => reason.arm)), ...(asked?.exclude ?? []), ...(row.barred?.arms ?? [])], view.signal);
  const several = (/** @type {string[]} */ ids) => ids.map(named).join(", ");
  const rewards = row.rewards.map((/** @type {any} */ each) => [link(named(each.arm), ["catalogues", bandit.catalogue], { arm: each.arm }), `${each.signal ? `${each.signal} ` : ""}${number(each.value)}`, time(each.time), each.default ? "nobody sent one: the default" : each.revised ? `sent, in the place of ${each.revised} earlier` : "sent"]);
  const arms = row.arms.map((/** @type {any} */ arm) => [count(arm.place), link(named(arm.id), ["catalogues", bandit.catalogue], { arm: arm.id }), decimal(arm.score), arm.propensity === null ? "–" : percent(arm.propensity, 2), arm.pinned ? "pinned" : ""]);
  const columnOf = candidates[0]?.terms ? await columnNames(bandit.catalogue, view.signal) : (/** @type {string} */ column) => column;
  view.root.append(
    h("p", {}, "A decision of ", link(bandit.id, ["bandits", bandit.id]), ". ", link("All decisions", ["decisions", bandit.id])),
    h("div", { class: "cols" },
      panel("What was asked", facts(/** @type {[string, any][]} */ ([
        ["Time", time(row.time)],
        ["Key", row.key ? link(row.key, ["keys", bandit.id, row.key]) : "none"],
        ["Arms asked for", asked ? count(asked.k) : "not kept"],
        ["Filter", code(row.filter)],
        ["Context", code(numbers ? Object.fromEntries(numbers.map((/** @type {string} */ each, /** @type {number} */ place) => [each, row.context[place]])) : row.context)],
        ...(row.candidates === undefined ? [] : [["Candidates", row.candidates === null ? "not kept" : [count(row.candidates.length), h("div", {}, several(row.candidates.slice(0, MOST_BARS).map((/** @type {any} */ each) => each.id)), row.candidates.length > MOST_BARS ? ", …" : "")]]]),
        ["Excluded", asked?.exclude.length ? several(asked.exclude) : "none"],
        ["Pinned", asked?.pins.length ? code(asked.pins) : "none"],
        ["At most", asked?.at_most.length ? code(asked.at_most) : "no rule"],
        ["Seed", seeded ? "given" : "its own"],
      ]))),
      panel("How it was decided", facts(/** @type {[string, any][]} */ ([
        ["Policy", row.policy],
        ["Group", row.group ?? "no holdout"],
        ...(row.agreement ? [["The policy would have shown", `${row.agreement.same_first ? "the same first arm" : "another first arm"}; ${percent(row.agreement.overlap, 0)} of the arms are in both lists`]] : []),
        ["Not allowed by quotas and repeats", row.barred === null ? "not known" : row.barred ? [row.barred.filters?.map((/** @type {any} */ each) => h("div", {}, code(each))), several(row.barred.arms ?? [])] : "none"],
        ["Eligible arms", row.eligible === null ? (row.filter ? "not counted" : "all") : count(row.eligible)],
        ["Bandit version", count(row.bandit_version)],
        ["Learner version", count(row.learner_version)],
        ...(row.prior_version === undefined ? [] : [["Version of the prior", count(row.prior_version)]]),
        ...(row.effects_version === undefined ? [] : [["Version of the arm effects", count(row.effects_version)]]),
        ["Catalogue version", count(row.catalogue_version)],
      ])))),
    panel("What was shown", table("What was shown", ["#place", "arm", "#score", "#propensity", ""], arms), h("h3", {}, "What came of it"), table("Rewards", ["arm", "#value", "time", ""], rewards, "No reward yet.", "cards")),
    panel("What stood to choose from", pool(bandit, row, named, columnOf, repeated, changed, candidates)),
    h("details", {}, h("summary", {}, "The call that this page makes"), preview(call)),
  );
}

/** @param {any} bandit @param {any} row @param {(id: string) => string} named @param {(column: string) => string} columnOf @param {boolean | null} repeated @param {string[]} changed @param {any[]} candidates */
function pool(bandit, row, named, columnOf, repeated, changed, candidates) {
  if (!candidates.length) return whyNot(row, changed);
  const bars = candidates.slice(0, MOST_BARS).map((arm) => ({ label: named(arm.id), value: arm.estimate, low: arm.estimate - 2 * arm.width, high: arm.estimate + 2 * arm.width, kind: arm.place === null ? "muted" : "policy", note: arm.place === null ? "" : `place ${arm.place}` }));
  const otherwise = candidates.filter((arm) => arm.place === null).sort((a, b) => b.estimate - a.estimate).slice(0, 5);
  return [
    h("p", {}, row.group === "holdout" ? `${HOLDOUT} ` : "", repeated ? "The choice was made again from its seed, and is the same." : "The choice was made again from its seed, and is another one."),
    chart("bars", { label: "Candidates", unit: "expected reward", spanName: "estimate ± 2 widths", bars }),
    candidates[0].terms && table("What the estimates are made of", ["arm", "#estimate", "the largest parts"], candidates.slice(0, MOST_BARS).map((arm) => [link(named(arm.id), ["catalogues", bandit.catalogue], { arm: arm.id }), number(arm.estimate), arm.terms.map((/** @type {any} */ term) => `${columnOf(term.column)} ${term.value > 0 ? "+" : ""}${number(term.value)}`).join(", ")])),
    because(bandit, named, candidates),
    candidates.length > MOST_BARS && h("p", { class: "hint" }, `${count(MOST_BARS)} of ${count(candidates.length)} candidates`),
    h("p", {}, "The highest estimates that were not shown: ", otherwise.length ? otherwise.map((arm, place) => [place ? ", " : "", link(named(arm.id), ["catalogues", bandit.catalogue], { arm: arm.id }), ` (${number(arm.estimate)})`]) : "none", "."),
  ];
}

/** Whose rewards speak for what was shown. @param {any} bandit @param {(id: string) => string} named @param {any[]} candidates */
function because(bandit, named, candidates) {
  const shown = candidates.filter((arm) => arm.because?.length).sort((a, b) => a.place - b.place);
  return shown.length > 0 && table("Because of", ["arm", "#estimate", "what this key liked, and its part of the estimate"], shown.map((arm) => [link(named(arm.id), ["catalogues", bandit.catalogue], { arm: arm.id }), number(arm.estimate), arm.because.map((/** @type {any} */ each) => `${named(each.arm)} +${number(each.share)}`).join(", ")]));
}

/** By what each kind of policy has chosen. @type {Record<string, string>} */
const CHOSE = {
  softmax: "softmax drew each place with the propensity above: arms of a higher estimate more often, every eligible one sometimes.",
  igw: "igw drew by propensities: the arm of the best estimate most of the time, others the less the further they are behind it.",
  epsilon_greedy: "epsilon_greedy took the best estimate, and with the probability epsilon any arm; the propensity above says how likely each was.",
  linucb: "linucb took the highest upper bound: the estimate plus alpha widths.",
  sub_elim: "Elimination rules out arms that cannot be the best any more; of those that may be, it takes the one that is known least.",
  linear_elim: "Elimination rules out arms that cannot be the best any more; of those that may be, it takes the one that is known least.",
  sub_ts: "Thompson sampling drew what could be true of this learner, and took the arms that are best by that draw; the score is what the draw expects.",
  linear_ts: "Thompson sampling drew what could be true of this learner, and took the arms that are best by that draw; the score is what the draw expects.",
};
const HOLDOUT = "It is of the holdout: shown without the policy, as the setting holdout says.";
/** @type {Record<string, string>} */
const CHANGED = {
  learner: "the learner has had a reward since, so that its estimates are others now",
  catalogue: "arms came, went or changed since",
  barred: "it is not known which arms quotas and repeats did not allow",
  bandit: "its version of that time is no longer kept",
  request: "the request was too large to be logged",
  prior: "the prior of that time is no longer kept",
  candidates: "the candidates of the request are not kept",
};

/** What can still be said of a choice that cannot be made again. @param {any} row @param {string[]} changed */
function whyNot(row, changed) {
  const shown = row.group === "holdout" ? HOLDOUT : (CHOSE[row.policy] ?? `The policy ${row.policy} chose it.`);
  return [
    h("p", {}, h("strong", {}, "What is certain: "), shown, row.arms.some((/** @type {any} */ arm) => arm.pinned) ? " Pinned arms stand where the request wanted them." : ""),
    h("p", {}, "The choice cannot be made again to compare it with what it left out: ", changed.map((each) => CHANGED[each] ?? each).join("; ") || "what it was made from has changed", ". Scores and propensities above are those of that time."),
  ];
}
