// What if: what another setting would have earned on the logged decisions, and the change itself.

import { get, path, send } from "./api.js";
import { chart } from "./charts.js";
import { empty, facts, h, link, panel, table } from "./dom.js";
import { between, count, decimal, number, percent, plain } from "./format.js";
import { action, Form, preview } from "./forms.js";
import { read } from "./json.js";
import { names } from "./measure.js";
import { noLog } from "./page-bandit.js";
import { merged } from "./settings.js";

const MEANINGS = {
  ips: "weighs each reward by how much more probable the other policy makes it; unbiased, and noisy",
  snips: "the same, scaled to weights of 1; a little biased, and steadier",
  dr: "adds a model of the rewards to it; the steadiest where the model fits",
};

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  const [name] = parts;
  if (!name) {
    const bandits = await names("bandits", signal);
    if (bandits.length === 1) return view.go(["what-if", bandits[0].id]);
    const rows = bandits.map((each) => [link(each.id, ["what-if", each.id]), each.policy, each.log ? "yes" : "no"]);
    root.append(panel("Which bandit?", bandits.length ? table("Bandits", ["bandit", "policy", "keeps a log"], rows) : empty("There is none yet. ", link("Make one on the overview", []), ".")));
    return undefined;
  }
  const bandit = await get(path`/v1/bandits/${name}`, signal, read);
  if (!bandit.log) return root.append(noLog(name));
  const shown = h("div", {});
  const result = h("div", { class: "page", "aria-live": "polite" });
  const progress = h("progress", { hidden: true, "aria-label": "the evaluation runs" });
  const call = (/** @type {any} */ values) => {
    const { patch, learners, from, to } = values;
    return { method: "POST", path: path`/v1/bandits/${name}/evaluations`, body: { policy: patch ?? {}, learners, ...(from ? { from } : {}), ...(to ? { to } : {}) } };
  };
  const form = new Form(
    [
      { name: "patch", label: "What would be different", kind: "json", value: view.query.get("patch") ?? '{"policy": "igw", "gamma": "auto"}', loc: "policy", hint: "Settings as PATCH takes them; the holdout is left out." },
      { name: "learners", label: "Learners", kind: "select", options: [["before", "as they were before each decision"], ["now", "as they are now"]], value: view.query.get("learners") ?? "before" },
      { name: "from", label: "From", value: view.query.get("from") ?? "", placeholder: "2026-01-31T00:00:00Z", hint: "ISO 8601; empty: all there is." },
      { name: "to", label: "Until before", value: view.query.get("to") ?? "", placeholder: "2026-02-28T00:00:00Z" },
    ],
    {
      submit: "Evaluate",
      changed: () => draw(),
      act: async (values) => {
        progress.hidden = false;
        result.replaceChildren();
        try {
          result.append(...evaluated(bandit, values.patch ?? {}, await send(call(values), signal), change));
        } finally {
          progress.hidden = true;
        }
      },
    },
  );
  const change = async (/** @type {import("./api.js").Call} */ made) => {
    await send(made);
    view.go(["bandits", name, "versions"]);
  };
  const draw = () => {
    try {
      view.remember({ patch: form.text("patch"), learners: form.text("learners"), from: form.text("from"), to: form.text("to") });
      shown.replaceChildren(preview(call(form.values())));
    } catch {
      // no JSON yet
    }
  };
  root.append(h("p", {}, "What would ", link(name, ["bandits", name]), ` have earned with other settings? Its logged decisions answer, as far as they hold what the other policy would have done. Now its policy is ${bandit.policy}. Nothing is changed.`), h("div", { class: "cols" }, panel("Another setting", form.el, progress), panel("The call it makes", shown)), result);
  shown.replaceChildren(preview(call(form.values())));
  return undefined;
}

/** @param {any} bandit @param {any} patch @param {any} answer @param {(call: import("./api.js").Call) => Promise<unknown>} apply */
function evaluated(bandit, patch, answer, apply) {
  const { estimates, logged, warnings, support, learners } = answer;
  const change = { method: "PATCH", path: path`/v1/bandits/${bandit.id}`, body: patch };
  const bars = [
    { label: "logged", value: logged.value ?? 0, low: logged.interval?.[0], high: logged.interval?.[1], kind: "muted" },
    ...estimates.filter((/** @type {any} */ each) => each.value !== null).map((/** @type {any} */ each) => ({ label: each.estimator, value: each.value, low: each.interval?.[0], high: each.interval?.[1], kind: "policy" })),
  ];
  const rows = estimates.map((/** @type {any} */ each) => [h("span", {}, h("strong", {}, each.estimator), h("span", { class: "meaning" }, MEANINGS[/** @type {keyof typeof MEANINGS} */ (each.estimator)] ?? "")), decimal(each.value), between(each.interval), number(each.effective_sample_size), decimal(each.value === null || logged.value === null ? null : each.value - logged.value)]);
  return [
    warnings.length > 0 && panel("Before you believe it", warnings.map((/** @type {string} */ words) => h("p", { class: "warning" }, words))),
    panel(
      "What it would have earned",
      chart("bars", { label: "Value of a decision", unit: "reward a decision", spanName: "95 % interval", bars }),
      table("Estimates", ["estimator", "#value", "#95 % interval", "#effective sample size", "#less what was logged"], rows),
      facts([
        ["Logged value", decimal(logged.value)],
        ["Decisions", count(logged.decisions)],
        ["Left out", count(logged.left_out)],
        ["Learners", learners ? `${learners.when}, ${count(learners.blocks)} blocks` : "–"],
        ["Weight on what was never done", percent(support?.missing_share)],
        ["Largest weight", number(support?.largest_weight)],
      ]),
    ),
    panel("Make it so", table("What it changes", ["setting", "now", "then"], Object.entries(patch).map(([name, value]) => [name, h("code", {}, plain(bandit[name])), h("code", {}, plain(merged(bandit[name], value)))]), "Nothing is different."), preview(change), action("Change the bandit", () => apply(change))),
  ].filter(Boolean);
}
