// Signals: what each has earned, their sum, guardrails, and what other weights would earn.

import { get, path, query, send } from "./api.js";
import { chart } from "./charts.js";
import { address, boxes, empty, h, panel, redraw, skeleton, table, warning } from "./dom.js";
import { between, decimal, number, signed } from "./format.js";
import { action, preview } from "./forms.js";
import { bestOf, evaluate } from "./evaluate.js";
import { lookOf, verdict } from "./measure.js";

const LOOK_MS = 10_000;
const STEPS = 7;
/** @type {Record<string, [string, string]>} */
const LIGHTS = { kept: ["●", "good"], broken: ["■", "bad"], unknown: ["○", ""] };

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
export function signals(view, body, bandit) {
  const note = h("div", {});
  const rails = h("div", {}, skeleton(1));
  const rows = h("div", {}, skeleton());
  body.append(h("div", {}, note), panel("Guardrails", rails), panel("What each signal earns", rows), weighing(view, bandit));
  view.live(LOOK_MS, note, async () => {
    const report = await get(path`/v1/bandits/${bandit.id}/report` + query({}), view.signal);
    redraw(rails, report.guardrails, () => (report.guardrails.length ? h("ul", { class: "lights" }, report.guardrails.map(light)) : empty("None is set. ", h("a", { href: address(["bandits", bandit.id, "settings"], { set: "guardrails", to: `[{"signal": ${JSON.stringify(Object.keys(bandit.signals)[0])}, "least": 0}]` }) }, "Set one"), ".")));
    redraw(rows, [report.signals, report.groups, report.lift, report.decisions], () => earnings(bandit, report));
  });
}

/** A guardrail as a light with its word: colour is not all that tells. @param {any} rail */
function light({ signal, most, least, state, mean, interval }) {
  const [sign, kind] = LIGHTS[state];
  const word = state === "unknown" ? "not yet known" : state;
  return h("li", {}, h("span", { class: `light ${kind}`, "aria-hidden": "true" }, sign), h("strong", {}, `${signal} ${most === null ? `at least ${number(least)}` : `at most ${number(most)}`}: `), h("span", { class: `tag ${kind}` }, word), h("span", { class: "meaning" }, `mean ${decimal(mean)}, 95%: ${between(interval)}`));
}

/** @param {any} bandit @param {any} report */
function earnings(bandit, report) {
  const of = (/** @type {any} */ each, /** @type {string} */ group) => each.groups.find((/** @type {any} */ own) => own.group === group);
  const rows = report.signals.map((/** @type {any} */ each) => {
    const [policy, holdout] = [of(each, "policy"), of(each, "holdout")];
    const weight = report.weights[each.signal];
    return [each.signal, `${each.signal} a decision`, number(weight), decimal(policy?.mean_reward), decimal(policy?.mean_reward === undefined || policy.mean_reward === null ? null : weight * policy.mean_reward), decimal(holdout?.mean_reward), verdict(bandit, each.lift)];
  });
  const [policy, holdout] = [of(report, "policy"), of(report, "holdout")];
  const unit = `${report.signals.map((/** @type {any} */ each) => `${number(report.weights[each.signal])} ${each.signal}`).join(" + ")}, a decision`;
  rows.push([h("strong", {}, "sum"), unit, "", "", h("strong", {}, decimal(policy?.mean_reward)), decimal(holdout?.mean_reward), verdict(bandit, report.lift)]);
  return [table("Signals", ["signal", "unit", "#weight", "#mean of the policy", "#adds to the sum", "#mean of the holdout", "against the holdout"], rows, "", "cards"), h("p", { class: "hint" }, "The mean of the holdout in the row of the sum is weighted as well. All intervals hold together.", lookOf(report) && ` All is ${lookOf(report)}.`)];
}

/** Sliders for the weights, and what others would have earned. @param {import("./main.js").View} view @param {any} bandit */
function weighing(view, bandit) {
  const names = Object.keys(bandit.signals);
  const now = Object.fromEntries(names.map((name) => [name, Number(bandit.signals[name].weight ?? 1)]));
  const chosen = { ...now };
  let moved = names.includes(view.query.get("signal") ?? "") ? String(view.query.get("signal")) : names[0];
  const result = h("div", { "aria-live": "polite" });
  const [progress, shown] = boxes(2);
  const draw = () => shown.replaceChildren(preview(change()));
  const change = () => ({ method: "PATCH", path: path`/v1/bandits/${bandit.id}`, body: { signals: Object.fromEntries(names.filter((name) => chosen[name] !== now[name]).map((name) => [name, { weight: chosen[name] }])) } });
  const rows = names.map((name) => {
    const most = Math.max(2, 4 * Math.abs(now[name]));
    const id = `weight-${names.indexOf(name)}`;
    const slider = h("input", { type: "range", min: now[name] < 0 ? -most : 0, max: most, step: "any", value: now[name], "aria-label": `Weight of ${name}, as a slider` });
    const field = h("input", { id, type: "text", inputmode: "decimal", value: String(now[name]), name });
    const take = (/** @type {string} */ text) => {
      const value = Number(text);
      if (!text.trim() || !Number.isFinite(value)) return;
      [chosen[name], moved] = [value, name];
      draw();
    };
    slider.addEventListener("input", () => take((field.value = String(Number(Number(slider.value).toPrecision(3))))));
    field.addEventListener("input", () => {
      if (Math.abs(Number(field.value)) > Number(slider.max)) slider.max = field.value;
      slider.value = field.value;
      take(field.value);
    });
    return h("div", { class: "weight" }, h("label", { for: id }, `Weight of ${name}`), slider, field, h("span", { class: "hint" }, `now ${number(now[name])}`));
  });
  const run = action("What would these weights earn?", async () => {
    // A curve: the signal that was moved last, from what it is now to what it would be and as far again.
    const to = chosen[moved];
    const [low, high] = [Math.min(now[moved], to), Math.max(now[moved], to)];
    const room = (high - low || Math.abs(high) || 1) / 2;
    const least = low >= 0 ? Math.max(0, low - room) : low - room;
    const steps = [...new Set([...Array.from({ length: STEPS }, (_, place) => least + (place / (STEPS - 1)) * (high + room - least)), now[moved], to])].sort((a, b) => a - b);
    const body = { policy: { weights: steps.map((weight) => ({ ...chosen, [moved]: weight })) } };
    const answers = await evaluate(bandit.id, [body], progress, view.signal);
    result.replaceChildren(...(answers ? curve(answers[0], names, moved, now, chosen) : [empty("Cancelled.")]));
  }, { class: "primary" });
  draw();
  const apply = action("Change the weights", async () => {
    await send(change(), view.signal);
    view.go(["bandits", bandit.id, "versions"]);
  });
  return panel("Weights: what would others do?", h("p", {}, "Move a weight; the log then tells what each signal would have earned. Nothing is changed until you say so."), h("div", { class: "weights" }, rows), h("div", { class: "buttons" }, run), progress, result, h("details", {}, h("summary", {}, "Make it so"), shown, apply));
}

/** @param {any} answer @param {string[]} names @param {string} moved @param {Record<string, number>} now @param {Record<string, number>} chosen */
function curve(answer, names, moved, now, chosen) {
  const points = answer.results.map((/** @type {any} */ each) => ({ weight: each.weights[moved], each }));
  const of = (/** @type {string} */ name, /** @type {any} */ each) => bestOf((each.signals[name] ?? { estimates: [] }).estimates);
  const kinds = ["policy", "holdout", "third", "c3", "c4", "c5", "c6", "c7"];
  const series = names.map((name, place) => ({ name, kind: kinds[place % kinds.length], points: points.map((/** @type {any} */ { weight, each }) => ({ x: weight, y: of(name, each)?.value ?? null, low: of(name, each)?.interval?.[0], high: of(name, each)?.interval?.[1] })) }));
  const [before, then] = [now, chosen].map((weights) => points.find((/** @type {any} */ { weight }) => weight === weights[moved])?.each);
  const rows = names.map((name) => {
    const [a, b] = [before && of(name, before), then && of(name, then)];
    return [name, number(now[name]), number(chosen[name]), decimal(a?.value), decimal(b?.value), signed(a && b ? b.value - a.value : null), b ? between(b.interval) : "–"];
  });
  const warnings = new Set(/** @type {string[]} */ (then?.warnings ?? answer.warnings ?? []));
  return [
    ...[...warnings].map(warning),
    chart("lines", { label: `What each signal would earn by the weight of ${moved}`, unit: "a decision", x: `weight of ${moved}`, series, none: "The log does not hold what these weights would do: no estimate is given." }),
    table("What these weights would do", ["signal", "#weight now", "#weight then", "#now, by the log", "#then", "#difference", "#95%"], rows, "", "cards"),
  ];
}
