// Decision: why these arms, and what would have been shown otherwise.

import { get, path, send } from "./api.js";
import { chart } from "./charts.js";
import { empty, facts, h, link, panel, table } from "./dom.js";
import { count, decimal, number, percent, plain, time } from "./format.js";
import { Form, preview } from "./forms.js";
import { earned, lastDecisions, names } from "./measure.js";

const SHOWN = 50;
const MOST_BARS = 30;

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  const [name, token] = parts;
  const bandits = name ? [] : await names("bandits", signal);
  if (!name && bandits.length === 1) {
    view.go(["decisions", bandits[0].id]);
    return;
  }
  const form = new Form(
    [
      ...(name ? [] : [/** @type {import("./forms.js").Field} */ ({ name: "bandit", label: "Bandit", kind: "select", options: bandits.map((each) => each.id) })]),
      { name: "decision", label: "Decision", kind: "area", hint: "The token that the choice came with, or its id in the list below." },
    ],
    { submit: "Explain it", act: (values) => view.go(["decisions", name ?? values.bandit, values.decision ?? ""]) },
  );
  if (!name) {
    root.append(panel("Which decision?", bandits.length ? [form.el, table("Bandits", ["bandit", "keeps a log"], bandits.map((each) => [link(each.id, ["decisions", each.id]), each.log ? "yes" : "no"]))] : empty("There is no bandit yet. ", link("Make one on the overview", []), ".")));
    return;
  }
  const bandit = await get(path`/v1/bandits/${name}`, signal);
  if (token) {
    await explain(view, bandit, token);
    return;
  }
  const rows = bandit.log ? (await lastDecisions(name, bandit.log.keep_s, signal)).slice(-SHOWN).reverse() : [];
  const listed = rows.map((row) => [time(row.time), row.key ?? "–", row.arms.map((/** @type {any} */ arm) => arm.id).join(", "), row.arms.map((/** @type {any} */ arm) => number(earned(row, arm.id))).join(", "), row.group ?? "–", link("explain", ["decisions", name, row.decision])]);
  root.append(panel("A decision", form.el), panel("The last decisions", table("The last decisions", ["time", "key", "arms", "rewards", "group", ""], listed, bandit.log ? "No decision is in the log yet." : "This bandit keeps no log of its decisions.")));
}

/** @param {import("./main.js").View} view @param {any} bandit @param {string} token */
async function explain(view, bandit, token) {
  const call = { method: "POST", path: path`/v1/bandits/${bandit.id}/log/explain`, body: { decision: token } };
  const { row, asked, seeded, changed, repeated, candidates } = await send(call, view.signal);
  const rewards = row.rewards.map((/** @type {any} */ each) => [link(each.arm, ["catalogues", bandit.catalogue], { arm: each.arm }), `${each.signal ? `${each.signal} ` : ""}${number(each.value)}`, time(each.time), each.default ? "nobody sent one: the default" : each.revised ? `sent, in the place of ${each.revised} earlier` : "sent"]);
  const arms = row.arms.map((/** @type {any} */ arm) => [count(arm.place), link(arm.id, ["catalogues", bandit.catalogue], { arm: arm.id }), decimal(arm.score), arm.propensity === null ? "–" : percent(arm.propensity, 2), arm.pinned ? "pinned" : ""]);
  view.root.append(
    h("div", { class: "cols" },
      panel("What was asked", facts([
        ["Time", time(row.time)],
        ["Key", row.key ? link(row.key, ["keys", bandit.id, row.key]) : "none"],
        ["Arms asked for", asked ? count(asked.k) : "not kept"],
        ["Filter", h("code", {}, plain(row.filter))],
        ["Context", h("code", {}, plain(row.context))],
        ["Excluded", asked?.exclude.length ? asked.exclude.join(", ") : "none"],
        ["Pinned", asked?.pins.length ? plain(asked.pins) : "none"],
        ["At most", asked?.at_most.length ? plain(asked.at_most) : "no rule"],
        ["Seed", seeded ? "given" : "its own"],
      ])),
      panel("By what", facts([
        ["Policy", row.policy],
        ["Group", row.group ?? "no holdout"],
        ["Barred", row.barred === null ? "not known" : row.barred ? plain(row.barred) : "none"],
        ["Eligible arms", row.eligible === null ? (row.filter ? "not counted" : "all") : count(row.eligible)],
        ["Bandit version", count(row.bandit_version)],
        ["Learner version", count(row.learner_version)],
        ...(row.prior_version === undefined ? [] : [["Version of the prior", count(row.prior_version)]]),
        ["Catalogue version", count(row.catalogue_version)],
      ]))),
    panel("What was shown", table("What was shown", ["#place", "arm", "#score", "#propensity", ""], arms), h("h3", {}, "What came of it"), table("Rewards", ["arm", "#value", "time", ""], rewards, "No reward yet.")),
    panel("What stood to choose from", pool(bandit, repeated, changed, candidates)),
    h("details", {}, h("summary", {}, "The call that this page makes"), preview(call)),
  );
}

/** @param {any} bandit @param {boolean | null} repeated @param {string[]} changed @param {any[]} candidates */
function pool(bandit, repeated, changed, candidates) {
  if (!candidates.length) return empty(`The choice cannot be made again, for since then this has changed: ${changed.join(", ") || "what it was made from"}. Explain a decision before its learner has the next reward to see estimates and widths.`);
  const bars = candidates.slice(0, MOST_BARS).map((arm) => ({ label: arm.id, value: arm.estimate, low: arm.estimate - 2 * arm.width, high: arm.estimate + 2 * arm.width, kind: arm.place === null ? "muted" : "policy", note: arm.place === null ? "" : `place ${arm.place}` }));
  const otherwise = candidates.filter((arm) => arm.place === null).sort((a, b) => b.estimate - a.estimate).slice(0, 5);
  return [
    h("p", {}, repeated ? "The choice was made again from its seed, and is the same." : "The choice was made again from its seed, and is another one."),
    chart("bars", { label: "Candidates", unit: "expected reward", spanName: "estimate ± 2 widths", bars }),
    candidates[0].terms && table("What the estimates are made of", ["arm", "#estimate", "the largest parts"], candidates.slice(0, MOST_BARS).map((arm) => [link(arm.id, ["catalogues", bandit.catalogue], { arm: arm.id }), number(arm.estimate), arm.terms.map((/** @type {any} */ term) => `${term.column} ${term.value > 0 ? "+" : ""}${number(term.value)}`).join(", ")])),
    candidates.length > MOST_BARS && h("p", { class: "hint" }, `${count(MOST_BARS)} of ${count(candidates.length)} candidates`),
    h("p", {}, "By estimate alone the next ones were: ", otherwise.length ? otherwise.map((arm, place) => [place ? ", " : "", link(arm.id, ["catalogues", bandit.catalogue], { arm: arm.id }), ` (${number(arm.estimate)})`]) : "none", "."),
  ];
}
