// Try it: a choice as a caller would ask for it, why it is so, and what a reward of it teaches.

import { get, list, path, Problem, query, send } from "./api.js";
import { chart } from "./charts.js";
import { address, facts, h, link, panel, table } from "./dom.js";
import { filterBuilder } from "./filters.js";
import { count, decimal, isNumber, number, percent } from "./format.js";
import { action, calls, curl, Form, keywords, python } from "./forms.js";
import { write } from "./json.js";
import { widths } from "./linear.js";
import { chooseOne, titlesOf } from "./measure.js";

/** @typedef {import("./forms.js").Field} Field */

const MOST_DIM = 200;

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  if (!parts[0]) return chooseOne(view, "try", "bandits", ["catalogue", "policy"], (each) => [each.catalogue, each.policy]);
  const bandit = await get(path`/v1/bandits/${parts[0]}`, signal);
  const answer = h("div", { class: "page" });
  const shown = h("div", {});
  const fields = fieldsOf(bandit, view.query);
  const suggestions = await keysOf(bandit, signal);
  const form = new Form(fields, {
    submit: "Choose",
    label: "The request",
    changed: () => draw(),
    act: (values) => choose(requestOf(bandit, values), false),
    more: [action("Only look (dry run)", async () => {
      form.clear();
      try {
        await choose(requestOf(bandit, form.values()), true);
      } catch (error) {
        form.show(error);
      }
    })],
  });
  filterBuilder(form, "filter", bandit.catalogue, signal);
  const draw = () => {
    try {
      const values = form.values();
      view.remember({ key: values.key, k: values.k, seed: values.seed, filter: form.text("filter"), rules: form.text("rules"), candidates: form.text("candidates"), exclude: values.exclude?.join(","), ...contextTexts(bandit, form) });
      shown.replaceChildren(callOf(bandit.id, requestOf(bandit, values)));
    } catch {
      // a field cannot be read yet
    }
  };

  /** @param {any} body @param {boolean} dry */
  async function choose(body, dry) {
    const at = path`/v1/bandits/${bandit.id}/choose`;
    let choice, why;
    if (dry) {
      why = choice = await send({ method: "POST", path: at, body: { ...body, dry_run: true } }, signal);
    } else {
      // With the same seed the dry run before it tells why; a key may lack the scope for it.
      const seeded = { seed: Math.floor(Math.random() * 2 ** 32), ...body };
      why = await send({ method: "POST", path: at, body: { ...seeded, dry_run: true } }, signal).catch(forgiven);
      choice = await send({ method: "POST", path: at, body: seeded }, signal);
    }
    const reasons = new Map((why?.arms ?? []).map((/** @type {any} */ arm) => [arm.id, arm]));
    const arms = choice.arms.map((/** @type {any} */ arm) => ({ ...reasons.get(arm.id), ...arm }));
    const named = await titlesOf(bandit.catalogue, arms.map((/** @type {any} */ arm) => arm.id), signal);
    answer.replaceChildren(...result(bandit, body.key, choice, arms, named));
    answer.scrollIntoView?.({ block: "nearest" });
  }

  /** @param {any} owner @param {string | undefined} key @param {any} choice @param {any[]} arms @param {(id: string) => string} named */
  function result(owner, key, choice, arms, named) {
    const bars = arms.map((arm) => ({
      label: named(arm.id),
      ...(arm.estimate === undefined ? { value: arm.score } : { value: arm.estimate, low: arm.estimate - 2 * arm.width, high: arm.estimate + 2 * arm.width }),
      mark: arm.draw ?? undefined,
      note: arm.propensity === undefined || arm.propensity === null ? number(arm.score) : percent(arm.propensity, 2),
      kind: choice.group === "holdout" ? "holdout" : arm.pinned ? "third" : "policy",
    }));
    /** @type {[string, any][]} */
    const unknown = choice.unknown ? [["Unknown candidates", count(choice.unknown)]] : [];
    const made = facts([["Decision", choice.decision ? link("explain it", ["decisions", owner.id, choice.decision]) : "none: only a look"], ["Policy", choice.policy], ["Group", choice.group ?? "no holdout"], ["Eligible arms", count(choice.eligible ?? undefined)], ...unknown, ["All compared", choice.exact ? "yes" : "no: an index was searched"], ["Learner version", count(choice.learner_version)]]);
    const drawn = chart("bars", { label: "Arms chosen, the best first", tabled: true, unit: `expected reward${arms.some((arm) => isNumber(arm.propensity)) ? "; at the right the probability to be shown" : ""}`, bars, spanName: "estimate ± 2 widths", markName: bars.some((bar) => bar.mark !== undefined) ? "what was drawn" : undefined });
    // Which numbers there are depends on the policy and on the learner.
    const columns = [["score", "score"], ["estimate", "estimate"], ["of it the prior's", "prior"], ["width", "width"], ["draw", "draw"]].filter(([, field]) => arms.some((arm) => isNumber(arm[field])));
    const listed = table("Arms", ["arm", ...columns.map(([title]) => `#${title}`), "#propensity", ""], arms.map((arm) => [link(named(arm.id), ["catalogues", owner.catalogue], { arm: arm.id }), ...columns.map(([, field]) => decimal(arm[field])), percent(arm.propensity, 2), arm.pinned ? h("span", { class: "tag" }, "pinned") : ""]), "", "cards");
    return [panel(choice.decision ? "Chosen" : "What would be chosen now", made, drawn, listed), choice.decision ? rewardPanel(owner, key, choice, arms, named) : null].filter(Boolean);
  }

  /** @param {any} owner @param {string | undefined} key @param {any} choice @param {any[]} arms @param {(id: string) => string} named */
  function rewardPanel(owner, key, choice, arms, named) {
    const after = h("div", { "aria-live": "polite" });
    const most = owner.reward?.max ?? 1;
    const signals = Object.keys(owner.signals ?? {});
    const reward = new Form(
      [
        { name: "arm", label: "Arm", kind: "select", options: arms.map((arm) => /** @type {[string, string]} */ ([arm.id, named(arm.id)])), loc: "rewards.0.arm" },
        .../** @type {Field[]} */ (signals.length ? [{ name: "signal", label: "Signal", kind: "select", options: signals, loc: "rewards.0.signal" }] : []),
        { name: "value", label: "Value", kind: "number", value: String(most), loc: "rewards.0.value", hint: "What came of it: 1 for a click, 0 for none." },
      ],
      {
        submit: "Send the reward",
        act: async ({ arm, value, signal: of }) => {
          const before = await learnerOf(owner, key, signal).catch(forgiven);
          const body = { rewards: [{ decision: choice.decision, value, at: Date.now(), ...(arms.length > 1 ? { arm } : {}), ...(of ? { signal: of } : {}) }] };
          const receipt = await send({ method: "POST", path: "/v1/rewards?wait=applied", body }, signal);
          const now = await learnerOf(owner, key, signal).catch(forgiven);
          after.replaceChildren(receiptOf(receipt), before && now ? learned(owner, key, before, now) : "");
        },
      },
    );
    return panel("Its reward", reward.el, after);
  }

  root.append(h("p", {}, "Bandit ", link(bandit.id, ["bandits", bandit.id]), " over ", link(bandit.catalogue, ["catalogues", bandit.catalogue]), `, policy ${bandit.policy}. `, "A choice counts as one, and is logged if the bandit keeps a log; a look does not."));
  root.append(h("div", { class: "cols" }, panel("The request", form.el, suggestions), panel("The same call", shown)), answer);
  draw();
  return undefined;
}

/** Null where a key lacks the scope for it. @param {unknown} error */
function forgiven(error) {
  if (error instanceof Problem && error.status === 403) return null;
  throw error;
}

/** @param {any} bandit @param {URLSearchParams} given @returns {Field[]} */
function fieldsOf(bandit, given) {
  /** @type {Field[]} */
  const fields = [];
  if (bandit.scope === "per_key") fields.push({ name: "key", label: "Key", value: given.get("key") ?? "visitor-1", hint: "Who is chosen for.", list: "keys" });
  fields.push({ name: "k", label: "How many (k)", kind: "number", value: given.get("k") ?? "5" });
  fields.push({ name: "seed", label: "Seed", kind: "number", value: given.get("seed") ?? "", hint: "The same seed on the same state: the same answer." });
  if (bandit.context?.fields) {
    for (const field of bandit.context.fields) {
      const name = `context.${field.name}`;
      const value = given.get(name) ?? "";
      if (field.kind === "category") fields.push({ name, label: field.name, kind: "select", options: [["", "not known"], ...field.values.map((/** @type {string} */ each) => [each, each])], value, loc: name, hint: "of the context" });
      else fields.push({ name, label: field.name, kind: field.kind === "hash" ? "text" : "number", value, loc: name, hint: field.kind === "cycle" ? `of the context, from 0 to ${field.period}` : "of the context" });
    }
  } else if (bandit.context) {
    fields.push({ name: "context", label: "Context", kind: "json", value: given.get("context") ?? write(new Array(bandit.context.dim).fill(0)), hint: `${bandit.context.dim} numbers` });
  }
  fields.push({ name: "filter", label: "Filter", kind: "json", value: given.get("filter") ?? "", placeholder: '{"price": {"$lte": 20}}', hint: "Which arms are eligible, beside the bandit's own filter." });
  fields.push({ name: "rules", label: "Rules", kind: "json", value: given.get("rules") ?? "", placeholder: '{"at_most": [{"field": "maker", "count": 1}]}', hint: "Pinned arms, at most so many of a value, and arms that differ." });
  const said = bandit.match?.fields.map((/** @type {any} */ field) => field.name) ?? [];
  const example = said.length ? write(["lamp", { id: "desk", match: { [said[0]]: 1 } }]) : '["lamp", {"id": "new", "features": [1, 0]}]';
  fields.push({ name: "candidates", label: "Candidates", kind: "json", value: given.get("candidates") ?? "", placeholder: example, hint: `The only arms that may be chosen: ids, and arms of this request alone.${said.length ? ` "match" of each may have ${said.join(", ")}.` : ""}` });
  fields.push({ name: "exclude", label: "Exclude", kind: "list", value: given.get("exclude") ?? "", hint: "Ids of arms, between commas." });
  return fields;
}

/** @param {any} bandit @param {Form} form */
function contextTexts(bandit, form) {
  const named = (bandit.context?.fields ?? []).map((/** @type {any} */ field) => [`context.${field.name}`, form.text(`context.${field.name}`)]);
  return bandit.context && !bandit.context.fields ? { context: form.text("context") } : Object.fromEntries(named);
}

/** @param {any} bandit @param {Record<string, any>} values */
function requestOf(bandit, values) {
  /** @type {Record<string, any>} */
  const body = {};
  /** @type {Record<string, any>} */
  const context = {};
  for (const [name, value] of Object.entries(values)) {
    if (name.startsWith("context.")) context[name.slice(8)] = value;
    else body[name] = value;
  }
  if (bandit.context?.fields) body.context = context;
  return body;
}

/** @param {string} bandit @param {any} body */
function callOf(bandit, body) {
  const call = { method: "POST", path: path`/v1/bandits/${bandit}/choose`, body };
  // JavaScript rounds long integers as it reads them.
  const script = write(body, 2, ({ source }) => (/^-?\d{16,}$/.test(source) ? `JSON.rawJSON("${source}")` : source));
  return calls([
    ["curl", curl(call)],
    ["Python", `from shortlist_client import Client\n\nclient = Client(${python(location.origin)})\nchoice = client.choose(${python(bandit)}${keywords(body)})\nprint([arm.id for arm in choice.arms])\nclient.reward(choice.decision, value=1.0${(body.k ?? 1) > 1 ? ", arm=choice.arms[0].id" : ""})`],
    ["TypeScript", `import { Client } from "@shortlist/client";\n\nconst client = new Client(${JSON.stringify(location.origin)});\nconst choice = await client.choose(${JSON.stringify(bandit)}, ${script});\nawait client.reward(choice.decision, { arm: choice.arms[0].id });`],
  ]);
}

/** Keys to choose from while one is typed. @param {any} bandit @param {AbortSignal} signal */
async function keysOf(bandit, signal) {
  if (bandit.scope !== "per_key") return h("datalist", { id: "keys" });
  const learners = await list(path`/v1/bandits/${bandit.id}/learners`, 50, signal).catch(forgiven);
  return h("datalist", { id: "keys" }, (learners?.items ?? []).map((/** @type {any} */ each) => h("option", { value: each.key })));
}

/** @param {any} bandit @param {string | undefined} key @param {AbortSignal} signal */
async function learnerOf(bandit, key, signal) {
  const at = path`/v1/bandits/${bandit.id}/learners/${key ?? "_global"}`;
  const learner = await get(at, signal);
  const dim = learner.theta.length + (learner.weights?.flat().length ?? 0) + (learner.offset === undefined ? 0 : 1);
  return dim <= MOST_DIM ? { ...learner, ...(await get(at + query({ include: "precision" }), signal)) } : learner;
}

/** @param {any} receipt */
function receiptOf(receipt) {
  const rejected = receipt.rejected.map((/** @type {any} */ each) => each.code).join(", ");
  const words = rejected ? `Rejected: ${rejected}.` : receipt.duplicate ? "It was sent before and counts once." : "Accepted, and learned.";
  return h("p", {}, h("strong", {}, words));
}

/** The learner before and after. @param {any} bandit @param {string | undefined} key @param {any} before @param {any} after */
function learned(bandit, key, before, after) {
  const [then, now] = [before, after].map((each) => (each.precision ? widths(each.precision) : []));
  const rows = after.theta.map((/** @type {number} */ value, /** @type {number} */ place) => [after.columns?.[place] ?? `${place + 1}`, decimal(before.theta[place], 4), decimal(value, 4), decimal(then[place], 4), decimal(now[place], 4)]);
  if (after.offset !== undefined) rows.push(["offset, of all arms", decimal(before.offset, 4), decimal(after.offset, 4), "", ""]);
  return h(
    "div",
    {},
    h("p", {}, `The learner has ${count(after.observations)} rewards, before ${count(before.observations)}. `, h("a", { href: address(["keys", bandit.id, key ?? "_global"]) }, "All that it knows")),
    h("details", { open: rows.length <= 12 }, h("summary", {}, "Before and after"), table("The learner before and after", ["coordinate", "#theta before", "#theta after", "#width before", "#width after"], rows, "", "cards flow")),
  );
}
