// What if: what another setting would have earned on the logged decisions, and the change itself.

import { get, path, send } from "./api.js";
import { chart } from "./charts.js";
import { boxes, button, code, empty, facts, folded, h, keeping, link, panel, table, warning } from "./dom.js";
import { bestOf, evaluate, supported } from "./evaluate.js";
import { between, count, decimal, number, percent, plain, signed } from "./format.js";
import { action, Form, preview } from "./forms.js";
import { read } from "./json.js";
import { chooseOne } from "./measure.js";
import { noLog } from "./page-bandit.js";
import { logWarnings, MEANINGS as SETTINGS, merged } from "./settings.js";

const MEANINGS = {
  ips: "weighs each reward by how much more probable the other policy makes it; unbiased, and noisy",
  snips: "the same, scaled to weights of 1; a little biased, and steadier",
  dr: "adds a model of the rewards to it; the steadiest where the model fits",
};

// Numbers that do not decide how far a policy explores: they are changed as JSON, as all that is no number.
const NO_DIALS = ["ridge", "delta", "shortlist", "half_life_s", "eta"];
/** @param {any} bandit */
const halfLifeOfKeys = ({ half_life_s: given }) => (given?.constructor === Object ? given.keys : given);
/** @param {any} schema @returns {boolean} */
const takesNumber = (schema) => ["number", "integer"].includes(schema.type) || (schema.anyOf ?? []).some(takesNumber);

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  const [name] = parts;
  if (!name) return chooseOne(view, "what-if", "bandits", ["policy", "keeps a log"], (each) => [each.policy, each.log ? "yes" : "no"]);
  const bandit = await get(path`/v1/bandits/${name}`, signal, read);
  if (!bandit.log) return root.append(noLog(name));
  const { items: policies } = await get("/v1/policies", signal);
  // Its log has no propensities: they are estimated, where learners are known as they were.
  const drawn = !policies.find((/** @type {any} */ each) => each.name === bandit.policy)?.propensities && !halfLifeOfKeys(bandit) && !bandit.signals;
  const [shown, progress, listed] = boxes(3);
  const result = h("div", { class: "page", "aria-live": "polite" });
  const about = h("span", { class: "hint" });
  const dials = h("div", { class: "fields" });
  /** Those that are compared. @type {any[]} */
  const patches = [];
  const call = (/** @type {any} */ values, /** @type {any} */ patch) => {
    const { learners, from, to } = values;
    return { policy: patch, learners, ...(drawn && learners === "before" ? { propensities: "draws" } : {}), ...(from ? { from } : {}), ...(to ? { to } : {}) };
  };
  const form = new Form(
    [
      { name: "patch", label: "What would be different", kind: "json", value: view.query.get("patch") ?? '{"policy": "igw", "gamma": "auto"}', loc: "policy", hint: "Filled in by the form above; any settings as PATCH takes them." },
      { name: "learners", label: "Learners", kind: "select", options: [["before", "as before each decision"], ["now", "as they are now"]], value: view.query.get("learners") ?? "before" },
      { name: "from", label: "From", value: view.query.get("from") ?? "", placeholder: "2026-01-31T00:00:00Z", hint: "ISO 8601; empty: all there is." },
      { name: "to", label: "Until before", value: view.query.get("to") ?? "", placeholder: "2026-02-28T00:00:00Z" },
    ],
    {
      submit: "Evaluate",
      changed: () => draw(),
      more: [button("Add to the comparison", () => add(), {})],
      act: async (values) => {
        const all = patches.length ? patches : [values.patch ?? {}];
        result.replaceChildren();
        const answers = await evaluate(bandit.id, all.map((patch) => call(values, patch)), progress, signal);
        result.replaceChildren(...(answers ? compared(bandit, all, answers, change) : [empty("Cancelled: nothing was changed.")]));
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
      const values = form.values();
      shown.replaceChildren(...(patches.length ? patches : [values.patch ?? {}]).map((patch) => preview({ method: "POST", path: path`/v1/bandits/${name}/evaluations` + "?wait=none", body: call(values, patch) })));
    } catch {
      // no JSON yet
    }
  };
  const add = () => {
    try {
      patches.push(form.values().patch ?? {});
    } catch (error) {
      form.show(error);
    }
    list();
  };
  const list = () => {
    listed.replaceChildren(...(patches.length ? [h("h3", {}, "Compared"), h("ul", { class: "chosen" }, patches.map((patch, place) => h("li", {}, h("code", {}, labelOf(patch)), " ", button("Remove", () => (patches.splice(place, 1), keeping(form.el.parentElement ?? listed, list)), { class: "quiet", "aria-label": `Remove ${labelOf(patch)}` }))))] : []));
    draw();
  };
  // The form: a policy and its options, as the service describes them.
  const policy = h("select", { id: "whatif-policy", value: worded(form.text("patch"))?.policy ?? bandit.policy, on: { change: () => options() } }, policies.map((/** @type {any} */ each) => h("option", { value: each.name }, each.name)));
  const options = () => {
    const { summary, options: schema } = policies.find((/** @type {any} */ each) => each.name === policy.value);
    const names = Object.keys(schema.properties ?? {}).filter((name) => !NO_DIALS.includes(name) && takesNumber(schema.properties[name]));
    const typed = worded(form.text("patch")) ?? {};
    const inputs = names.map((option) => {
      const given = typed.policy === policy.value ? typed[option] : undefined;
      const input = h("input", { id: `whatif-${option}`, value: plain(given ?? (bandit.policy === policy.value ? bandit[option] : (schema.properties[option].default ?? "auto"))).replace("–", ""), on: { input: () => fill() } });
      return { option, input, row: h("div", { class: "field" }, h("label", { for: `whatif-${option}` }, option), input, h("span", { class: "hint" }, SETTINGS[option] ?? "")) };
    });
    const fill = () => {
      const given = inputs.filter(({ input }) => input.value.trim()).map(({ option, input }) => [option, worded(input.value.trim())]);
      form.set("patch", { policy: policy.value, ...Object.fromEntries(given) });
      draw();
    };
    about.textContent = summary;
    dials.replaceChildren(...inputs.map(({ row }) => row));
    if (filled) fill();
    filled = true;
  };
  let filled = false;
  options();
  const presets = presetsOf(bandit).map(([text, several]) => button(text, () => {
    patches.splice(0, patches.length, ...several);
    list();
  }, { class: "quiet" }));
  root.append(
    h("p", {}, "What would ", link(name, ["bandits", name]), ` have earned with other settings? Its logged decisions answer, as far as they hold what the other policy would have done. Now its policy is ${bandit.policy}. Nothing is changed.`),
    ...logWarnings(bandit).map(warning),
    panel("Another setting", h("div", { class: "buttons" }, "Presets: ", presets), h("div", { class: "field" }, h("label", { for: "whatif-policy" }, "Policy"), policy, about), dials, form.el, listed, progress, folded("The call it makes", shown)),
    result,
  );
  draw();
  return undefined;
}

/** What is often asked, from what the bandit is. @param {any} bandit @returns {[string, any[]][]} */
function presetsOf(bandit) {
  const own = bandit.policy;
  const temperature = Number(bandit.used?.temperature ?? bandit.temperature) || 1;
  return [
    ["every policy with probabilities", [{ policy: "softmax", temperature: "auto" }, { policy: "igw", gamma: "auto" }, { policy: "epsilon_greedy", epsilon: 0.05 }]],
    ["more and less exploration", own === "softmax" ? [0.5, 1, 2].map((factor) => ({ temperature: temperature * factor })) : own === "epsilon_greedy" ? [0.01, 0.05, 0.2].map((epsilon) => ({ epsilon })) : own === "igw" ? [10, 100, 1000].map((gamma) => ({ gamma })) : [0.5, 1, 2].map((exploration) => ({ exploration }))],
    ["as it is", [{}]],
  ];
}

/** A word, or what is read as JSON. @param {string} text */
function worded(text) {
  try {
    return read(text);
  } catch {
    return text;
  }
}

/** @param {any} patch */
const labelOf = (patch) => Object.entries(patch).map(([field, value]) => (field === "policy" ? plain(value) : `${field} ${plain(value)}`)).join(", ") || "as it is";

/** @param {any} bandit @param {any[]} patches @param {any[]} answers @param {(call: import("./api.js").Call) => Promise<unknown>} apply */
function compared(bandit, patches, answers, apply) {
  const { logged } = answers[0];
  const bars = [{ label: "logged", value: logged.value ?? 0, low: logged.interval?.[0], high: logged.interval?.[1], kind: "muted" }, ...answers.flatMap((answer, place) => {
    const best = bestOf(answer.estimates);
    return best ? [{ label: labelOf(patches[place]), value: best.value, low: best.interval?.[0], high: best.interval?.[1], kind: supported(answer).kind === "good" ? "policy" : "muted" }] : [];
  })];
  const verdicts = answers.map((answer, place) => {
    const { kind, word, why } = supported(answer);
    return h("li", {}, h("code", {}, labelOf(patches[place])), " ", h("span", { class: `tag ${kind}` }, word), h("span", { class: "meaning" }, why), ...[...new Set(answer.warnings)].map(warning));
  });
  return [
    panel("Would the log support it?", h("ul", { class: "chosen" }, verdicts)),
    panel("What it would have earned", chart("bars", { label: "Value of a decision", unit: "reward a decision", spanName: "95% interval", bars })),
    ...answers.map((answer, place) => estimates(bandit, patches[place], answer, apply)),
  ];
}

/** @param {any} bandit @param {any} patch @param {any} answer @param {(call: import("./api.js").Call) => Promise<unknown>} apply */
function estimates(bandit, patch, answer, apply) {
  const { logged, support, learners, propensities } = answer;
  const change = { method: "PATCH", path: path`/v1/bandits/${bandit.id}`, body: patch };
  const rows = answer.estimates.map((/** @type {any} */ each) => [h("span", {}, h("strong", {}, each.estimator), h("span", { class: "meaning" }, MEANINGS[/** @type {keyof typeof MEANINGS} */ (each.estimator)] ?? "")), decimal(each.value), between(each.interval), number(each.effective_sample_size), signed(each.value === null || logged.value === null ? null : each.value - logged.value)]);
  return panel(
    `${labelOf(patch)}`,
    table("Estimates", ["estimator", "#value", "#95% interval", "#effective sample size", "#less what was logged"], rows, "", "cards"),
    facts([
      ["Logged value", decimal(logged.value)],
      ["Decisions", count(logged.decisions)],
      ["Left out", count(logged.left_out)],
      ["Learners", learners ? `${learners.when}, ${count(learners.blocks)} blocks` : "–"],
      ["Propensities", propensities?.source === "draws" ? `of ${count(propensities.estimated)} decisions from ${count(propensities.draws)} draws each` : "as logged"],
      ["Weight on what was never done", percent(support?.missing_share)],
      ["Largest weight", number(support?.largest_weight)],
    ]),
    folded("Make it so", table("What it changes", ["setting", "now", "then"], Object.entries(patch).map(([field, value]) => [field, code(bandit[field]), code(merged(bandit[field], value))]), "Nothing is different."), preview(change), action("Change the bandit", () => apply(change))),
  );
}
