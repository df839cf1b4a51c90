// Bandit: does it work, does it explore, what is it set to and since when, and changes with a preview.

import { ask, get, list, now, path, Problem, query, send } from "./api.js";
import { changes } from "./changes.js";
import { chart } from "./charts.js";
import { address, boxes, button, code, empty, folded, h, hasPage, link, panel, redraw, skeleton, table, tile, warning } from "./dom.js";
import { between, count, decimal, decisionsIn, duration, isNumber, number, percent, plain, sentence as asSentence, signed, time } from "./format.js";
import { action, deletion, Form, preview } from "./forms.js";
import { read, write } from "./json.js";
import { mismatch, surelyAtLeast } from "./linear.js";
import { bands, course, deviation, entropy, holdoutSince, lastDecisions, names, RANGES, shownArms, timeline, titleIn, titlesOf, verdict } from "./measure.js";
import { moving } from "./move.js";
import { MISMATCH, SRM_FACTOR, alarmsOf, alarmsOfArms, boundsOf, costOf, isOfInterval, nextStep, outcome, planned, sizesOf } from "./outcome.js";
import { prior } from "./prior.js";
import { quotas } from "./quotas.js";
import { CHANGEABLE, difference, fieldName, FIXED, FORM_FIELDS, FORMS, MEANINGS, merged, settingWarnings } from "./settings.js";
import { signals } from "./signals.js";

const LOOK_MS = 10_000;
const ALARMED = 200; // decisions
const MOST_FOR_BANDS = 20_000;
const MOST_LISTED = 1000;
const MOST_QUIET = 4; // usual windows of decisions
const TABS = { "": "Does it work?", signals: "Signals", explore: "Does it explore?", quotas: "Quotas", settings: "Settings", versions: "What changed", learners: "Learners", prior: "What people share", move: "Move" };

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  if (!parts[0]) {
    const bandits = await names("bandits", signal);
    const rows = bandits.map((each) => [link(each.id, ["bandits", each.id]), link(each.catalogue, ["catalogues", each.catalogue]), each.policy, each.scope, each.log ? "yes" : "no", each.holdout ? percent(each.holdout.share) : "none", count(each.version)]);
    root.append(panel("All bandits", bandits.length ? table("Bandits", ["bandit", "catalogue", "policy", "learners", "keeps a log", "#holdout", "#version"], rows, "", "cards") : empty("There is none yet. ", link("Make one on the overview", []), ".")));
    return;
  }
  const [name, tab = ""] = parts;
  const bandit = await get(path`/v1/bandits/${name}`, signal, tab === "settings" ? read : undefined);
  const tabs = Object.entries(TABS).filter(([part]) => (part !== "prior" || bandit.prior === "learned") && (part !== "signals" || bandit.signals)).map(([part, text]) => h("a", { href: address(["bandits", name, part].filter(Boolean)), "aria-current": part === tab ? "page" : null }, text));
  root.append(
    h("p", {}, `Policy ${bandit.policy} over `, link(bandit.catalogue, ["catalogues", bandit.catalogue]), ". ", link("Try it", ["try", name]), hasPage("what-if") && [" · ", link("What if", ["what-if", name])], " · ", link("Decisions", ["decisions", name])),
    h("nav", { class: "tabs", "aria-label": "Parts of this page" }, tabs),
    ...(bandit.move ? [h("p", { class: "warning" }, `Moved from ${bandit.move.from} to ${bandit.move.to}: what was learned is being carried, ${percent(bandit.move.carried)} is done.`)] : []),
  );
  if (!(tab in TABS)) return root.append(h("p", { class: "empty" }, `There is no tab ${tab} here.`));
  const body = h("div", { class: "page" });
  root.append(body);
  const needsLog = tab === "" || tab === "explore" || tab === "signals";
  if (needsLog && !bandit.log) body.append(noLog(name));
  else if (tab === "explore") exploring(view, body, bandit);
  else if (tab === "signals") signals(view, body, bandit);
  else if (tab === "settings") settings(view, body, bandit);
  else if (tab === "versions") await changes(view, body, bandit);
  else if (tab === "learners") await learners(view, body, bandit);
  else if (tab === "prior") prior(view, body, bandit);
  else if (tab === "quotas") quotas(view, body, bandit);
  else if (tab === "move") await moving(view, body, bandit);
  else await working(view, body, bandit);
}

/** @param {string} name */
export function noLog(name) {
  return panel("No log", empty("This bandit keeps no log of its decisions, so nothing is known of what it earns. ", h("a", { href: address(["bandits", name, "settings"], { set: "log", to: "{}" }) }, "Keep one"), "."));
}

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
async function working(view, body, bandit) {
  const { signal } = view;
  const [note, claim, next, warnings, places] = boxes(5);
  const sizes = bandit.holdout && plan(bandit.holdout.share); // once: it keeps what is typed
  const tiles = h("div", { class: "tiles" });
  const pieces = h("div", {}, skeleton(6));
  const looks = h("div", {}, skeleton(6));
  tiles.append(skeleton(2));
  const range = h("select", { value: view.query.get("range") ?? "", on: { change: () => (view.remember({ range: range.value }), (known = null), (drawnOf = -1), again()) } }, h("option", { value: "" }, "since the holdout is shown so, a week at most"), Object.keys(RANGES).map((each) => h("option", { value: each }, `the last ${each}`)));
  body.append(h("div", {}, note, claim, next, h("label", { class: "inline" }, "Decisions of ", range), tiles, warnings, places), h("div", { class: "cols" }, panel("Mean reward over time", pieces), panel("What was known when", looks)));
  const held = holdoutSince(bandit, signal);
  held.catch(() => null); // it is awaited below
  /** @type {{at: number, report: any}[] | null} */
  let known = null;
  let drawnOf = -1;
  const again = view.live(LOOK_MS, note, async () => {
    const coming = lastDecisions(bandit.id, signal);
    coming.catch(() => null); // it is awaited below, unless what is asked first fails
    const since = range.value ? now() - RANGES[/** @type {keyof typeof RANGES} */ (range.value)] : (await held).since;
    const { report, from, to, bucketS } = await timeline(bandit.id, since, signal);
    const groups = Object.fromEntries(report.groups.map((/** @type {any} */ each) => [each.group, each]));
    const { policy, holdout } = groups;
    const { kind, sentence, numbers } = outcome(bandit, report, from);
    redraw(claim, [sentence, numbers], () => [h("p", { class: `claim ${kind}` }, sentence), numbers && h("p", { class: "soft" }, numbers), !report.lift.interval && sizes]);
    redraw(tiles, report, () => [
      tile("Lift over the holdout", signed(report.lift.value), verdict(bandit, report.lift), report.lift.interval?.[0] > 0 ? "good" : report.lift.interval?.[1] < 0 ? "bad" : ""),
      report.agreement && tile("Agreement with your list", percent(report.agreement.same_first, 0), `the same first arm, of ${decisionsIn(report.agreement.decisions)}; ${percent(report.agreement.overlap, 0)} of the arms are in both`),
      tile("Policy", decimal(policy?.mean_reward), `mean of ${decisionsIn(policy?.decisions ?? 0)}, ${between(policy?.interval)}`),
      tile("Holdout", decimal(holdout?.mean_reward), bandit.holdout ? `mean of ${decisionsIn(holdout?.decisions ?? 0)}, ${between(holdout?.interval)}` : "none is set"),
      tile("Rewarded", percent(policy?.decisions ? policy.rewarded / policy.decisions : NaN), "of the policy's decisions"),
    ]);
    const rows = await coming;
    const shares = mismatched(bandit, report, rows, (await held).share ?? 0);
    const bounds = boundsOf(bandit, rows);
    const alarms = [...alarmsOf(bandit, report, rows.slice(-ALARMED).reverse()), ...(await alarmsOfArms(bandit, signal))].filter((each) => !shares || each !== MISMATCH);
    const step = nextStep(bandit, report, shares ? [...alarms, shares] : alarms);
    redraw(next, [step, costOf(bandit, report)], () => h("p", {}, costOf(bandit, report), h("strong", {}, " Next: "), hasPage(step.parts[0]) ? link(step.text, step.parts, step.query) : step.text, "."));
    redraw(warnings, [report.warnings, shares, bandit.holdout, alarms], () => [
      alarms.length ? h("p", { class: "warning alarm" }, alarms.map(asSentence).join(" ")) : !shares && h("p", { class: "done" }, "Nothing is wrong. ", h("span", { class: "soft" }, "Looked at: guardrails, the groups' sizes, whether rewards come, whether the learner learns, features and index.")),
      shares && h("p", { class: "warning" }, h("strong", {}, "Sample ratio mismatch. "), shares),
      report.warnings.filter((/** @type {string} */ each) => !(isOfInterval(each) && bandit.holdout)).map(warning),
      !bandit.holdout && h("p", { class: "warning" }, "Without a holdout it is not known what would have been earned otherwise. ", h("a", { href: address(["bandits", bandit.id, "settings"], { set: "holdout", to: '{"share": 0.1}' }) }, "Set one"), "."),
    ]);
    redraw(places, report.places, () => (report.places.length ? placesOf(report.places) : []));
    const series = [
      { name: "policy", kind: "policy", points: course(report, "policy", deviation(rows, "policy"), bounds) },
      ...(holdout?.decisions ? [{ name: "holdout", kind: "holdout", points: course(report, "holdout", deviation(rows, "holdout"), bounds) }] : []),
    ];
    redraw(pieces, series, () => [
      chart("lines", { label: "Mean reward of a decision", unit: "reward a decision", x: "time", series, none: "No decision is in the log yet." }),
      h("p", { class: "hint" }, `Each point is of ${duration(bucketS)}: the fewer decisions, the smaller and paler. Bands are ± 2 standard errors; where nothing was decided there is no line.`),
    ]);
    const total = report.decisions;
    if (total === drawnOf) return;
    drawnOf = total;
    if (!total) return redraw(looks, "none", () => empty("No decision is in the log yet."));
    // What was known at earlier times is read once; then each look adds what is known now.
    const read = async () => {
      known = known ? [...known, { at: to, report }] : await bands(bandit.id, from, to, report, bucketS, signal);
      drawLooks(looks, known, bounds);
    };
    if (known || total <= MOST_FOR_BANDS) return read();
    return redraw(looks, total, () => [empty(`What is known now stands above. For what was known earlier ${count(total)} decisions are read several times.`), action("Read them", read)]);
  });
}

/** How many decisions it takes, at a rate that one expects. @param {number} share of the holdout */
function plan(share) {
  const rate = h("input", { type: "number", min: "0.01", max: "99.99", step: "any", value: "5", class: "rate" });
  const said = h("output", {});
  const draw = () => said.replaceChildren(planned(Number(rate.value) / 100, share));
  rate.addEventListener("input", draw);
  draw();
  return h("p", { class: "soft" }, h("label", {}, "If rewards are 0 or 1, and of 100 decisions ", rate, " are rewarded: "), said);
}

/** What was known of both groups at some times, with its bands within bounds. @param {HTMLElement} box @param {{at: number, report: any}[]} known @param {[number, number]} bounds */
function drawLooks(box, known, [least, most]) {
  const of = (/** @type {string} */ group) => known.map(({ at, report }) => {
    const own = report.groups.find((/** @type {any} */ each) => each.group === group);
    return { x: at, y: own?.decisions ? own.mean_reward : null, ...(own?.interval ? { low: Math.max(least, own.interval[0]), high: Math.min(most, own.interval[1]) } : {}) };
  });
  const series = ["policy", "holdout"].map((group) => ({ name: group, kind: group, points: of(group) })).filter(({ kind, points }) => kind === "policy" || points.some(({ y }) => y !== null));
  const { interval_kind, unit } = known[known.length - 1].report;
  redraw(box, series, () => [chart("lines", { label: "What was known then: means, with bands", unit: "reward a decision", x: "time", series }), h("p", { class: "hint" }, series.some(({ points }) => points.some(({ low }) => isNumber(low))) ? `Bands hold the true mean with 95%, however often you look (${interval_kind}; groups are drawn by ${unit}).` : "There are no bands yet: they need more decisions.")]);
}

/** What the places of lists have earned, and how likely random lists say that each is looked at. @param {any[]} places */
function placesOf(places) {
  const rows = places.map((each) => [each.group, count(each.place), count(each.decisions), decimal(each.mean_reward), decimal(each.examination), between(each.interval)]);
  return h("details", {}, h("summary", {}, "Places of lists"), table("Places of lists", ["group", "#place", "#decisions", "#mean reward", "#examination", "#95%"], rows, "", "cards"));
}

/** Words if the groups' sizes do not fit the share. @param {any} bandit @param {any} report @param {any[]} rows the last decisions @param {number} since when the share is what it is */
function mismatched(bandit, report, rows, since) {
  const share = bandit.holdout?.share;
  let [first, second] = sizesOf(report, share);
  let what = "decisions";
  if (!share || share >= 1 || !first) return null;
  if (bandit.scope === "per_key") {
    // Keys are what is drawn: those of the last decisions.
    const groups = [...new Map(rows.filter((row) => row.time >= since).map((row) => [row.key, row.group])).values()];
    [first, second, what] = [groups.filter((group) => group === "policy").length, groups.filter((group) => group === "holdout").length, "keys among the last decisions"];
  }
  if (mismatch(first, second, share) < SRM_FACTOR) return null;
  return `${count(second)} of ${count(first + second)} ${what} are in the holdout, which should be ${percent(share)}. Something loses decisions of one group: do not trust the comparison.`;
}

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
function exploring(view, body, bandit) {
  const [note, claim, most, best, fresh, curve] = boxes(6);
  const tiles = h("div", { class: "tiles" });
  const never = h("div", {}, skeleton());
  for (const box of [curve, fresh, most, best]) box.append(skeleton(6));
  body.append(h("div", {}, note, claim, tiles), panel("Never shown", never), h("div", { class: "cols" }, panel("Shown most", most), panel("Best paid", best), panel("How evenly it shows", curve), panel("How fast arms are tried", fresh)));
  view.live(LOOK_MS, note, async () => {
    const [all, catalogue] = await Promise.all([lastDecisions(bandit.id, view.signal), get(path`/v1/catalogues/${bandit.catalogue}`, view.signal)]);
    const rows = all.filter((row) => row.group !== "holdout");
    const arms = shownArms(rows);
    const bits = entropy(rows);
    redraw(claim, [arms.length, rows.length, catalogue.size], () => h("p", { class: "claim" }, inWords(arms, rows, catalogue)));
    redraw(tiles, [rows.length, bits, catalogue.size], () => [
      tile("Entropy", `${number(bits)} bits`, `as ${number(2 ** bits)} arms shown alike; all alike: ${number(Math.log2(Math.max(1, catalogue.size)))} bits`),
      tile("Arms shown", percent(catalogue.size ? arms.length / catalogue.size : NaN), `${count(arms.length)} of ${count(catalogue.size)}, in these decisions`),
      tile("Looked at", count(rows.length), "last decisions of the policy"),
      tile("Since", rows.length ? time(rows[0].time) : "–", "the oldest of them"),
    ]);
    const windows = pieces(rows, 12);
    const even = [{ name: "entropy", kind: "policy", points: withGaps(windows) }];
    redraw(curve, even, () => chart("lines", { label: "Entropy of what is shown", unit: "bits", x: "time", least: 0, series: even, none: "No decision is in the log yet." }));
    const seen = new Set();
    const tried = [{ name: "arms shown at least once", kind: "third", points: rows.map((row, place) => {
      for (const arm of row.arms) seen.add(arm.id);
      return { x: place + 1, y: seen.size };
    }).filter((_, place) => place % Math.ceil(rows.length / 60 || 1) === 0) }];
    redraw(fresh, tried, () => chart("lines", { label: "Arms shown at least once", unit: "arms", x: "decisions", least: 0, series: tried, none: "No decision is in the log yet." }));
    const values = arms.flatMap((arm) => arm.values);
    const [low, high] = values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
    const paid = arms.filter((arm) => arm.size > 2).map((arm) => ({ ...arm, atLeast: surelyAtLeast(arm.values, low, high) })).sort((a, b) => b.atLeast - a.atLeast).slice(0, 12);
    const named = await titlesOf(catalogue, [...arms.slice(0, 12), ...paid].map((arm) => arm.id), view.signal);
    await neverShown(never, bandit, catalogue, arms, rows.length, view.signal);
    const bar = (/** @type {any} */ arm, /** @type {any} */ more) => ({ label: named(arm.id), href: address(["catalogues", bandit.catalogue], { arm: arm.id }), ...more });
    redraw(most, arms, () => chart("bars", { label: "Arms shown most", unit: "times shown", bars: arms.slice(0, 12).map((arm) => bar(arm, { value: arm.shown })), none: "Nothing was shown yet." }));
    redraw(best, paid, () => chart("bars", { label: "Arms that surely earn most, by lower bounds", unit: "mean reward (of how many)", spanName: "± 2 standard errors", bars: paid.map((arm) => bar(arm, { value: arm.mean, low: arm.low, high: arm.high, note: `${number(arm.mean, 2)} (${arm.size})`, kind: "third" })), none: "No arm has three rewards yet." }));
  });
}

/** Arms that are in none of the last decisions: all of a catalogue of at most 1,000 arms, else of a random sample. @param {HTMLElement} box @param {any} bandit @param {any} catalogue @param {{id: string}[]} shown @param {number} decisions @param {AbortSignal} signal */
async function neverShown(box, bandit, catalogue, shown, decisions, signal) {
  const known = new Set(shown.map((arm) => arm.id));
  const isSample = catalogue.size > MOST_LISTED;
  const items = isSample ? (await get(path`/v1/catalogues/${catalogue.id}/arms` + query({ limit: MOST_LISTED, sample_seed: 1 }), signal)).items : (await list(path`/v1/catalogues/${catalogue.id}/arms`, MOST_LISTED, signal)).items;
  const rest = items.filter((/** @type {any} */ arm) => !known.has(arm.id));
  const of = isSample ? `${count(rest.length)} of a random sample of ${count(items.length)} arms` : `${count(rest.length)} of ${count(items.length)} arms`;
  redraw(box, [of, decisions], () => [
    h("p", {}, decisions ? `${of} are in none of the last ${count(decisions)} decisions of the policy.` : "No decision is in the log yet."),
    bandit.filter && h("p", { class: "hint" }, "The bandit's own filter, which may keep them out: ", code(bandit.filter)),
    decisions > 0 && rest.length > 0 && folded("Which ones", h("p", {}, rest.slice(0, 200).map((/** @type {any} */ arm, /** @type {number} */ place) => [place ? ", " : "", link(titleIn(arm, catalogue.display?.title), ["catalogues", catalogue.id], { arm: arm.id })]), rest.length > 200 ? ` … and ${count(rest.length - 200)} more` : "")),
  ]);
}

/** How widely it shows, in words. @param {{id: string, shown: number}[]} arms the most shown first @param {any[]} rows @param {any} catalogue */
function inWords(arms, rows, catalogue) {
  if (!arms.length || !catalogue.size) return "Nothing was shown yet.";
  const firsts = new Map();
  for (const [place, row] of rows.entries()) for (const { id } of row.arms) if (!firsts.has(id)) firsts.set(id, place + 1);
  const places = arms.reduce((sum, { shown }) => sum + shown, 0);
  const middle = [...firsts.values()][Math.floor((firsts.size - 1) / 2)]; // they come in their order
  return `${percent(Math.min(1, arms.length / catalogue.size))} of the catalogue was shown in the last ${count(rows.length)} decisions: half of these arms within the first ${count(middle)}. The arm that is shown most has ${percent(arms[0].shown / places)} of all places.`;
}

/** The entropy of windows of decisions, with a gap where far longer than usual nothing was decided. @param {any[][]} windows */
function withGaps(windows) {
  const lengths = windows.map((own) => own[own.length - 1].time - own[0].time).sort((a, b) => a - b);
  const usual = lengths[Math.floor(lengths.length / 2)] ?? 0;
  return windows.flatMap((own, place) => {
    const last = windows[place - 1]?.[windows[place - 1].length - 1].time ?? own[0].time;
    return [...(own[0].time - last > MOST_QUIET * usual + 1000 ? [{ x: last + 1, y: null }] : []), { x: own[0].time, y: entropy(own) }];
  });
}

/** @template T @param {T[]} rows @param {number} parts @returns {T[][]} */
function pieces(rows, parts) {
  const each = Math.max(20, Math.ceil(rows.length / parts));
  const found = [];
  for (let first = 0; first < rows.length; first += each) found.push(rows.slice(first, first + each));
  return found.filter((own) => own.length >= Math.min(20, rows.length));
}

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
function settings(view, body, bandit) {
  const used = bandit.used ?? {};
  const rows = Object.entries(MEANINGS)
    .filter(([name]) => name in bandit)
    .map(([name, meaning]) => {
      const value = code(bandit[name]);
      const now = name in used && typeof bandit[name] === "string" ? h("span", { class: "meaning" }, `now ${number(used[name])}`) : null;
      const change = FIXED.has(name) ? h("span", { class: "soft" }, "cannot be changed") : button("Change", () => editor.take(name), { class: "quiet", "aria-label": `Change ${name}` });
      return [h("span", {}, h("strong", {}, name), h("span", { class: "meaning" }, meaning)), h("span", {}, value, now), change];
    });
  const editor = new PatchEditor(view, bandit);
  const given = view.query.get("set");
  const held = view.query.get("held");
  body.append(
    held ? h("p", { class: "done", role: "status" }, held === "same" ? `Nothing was different: version ${count(bandit.version)} still holds. ` : `Version ${count(bandit.version)} holds from now on. `, link("What changed", ["bandits", bandit.id, "versions"])) : "",
    ...settingWarnings(bandit).map(warning),
    h("div", { class: "cols" }, panel("Settings", table("Settings", ["setting", "value", ""], rows, "", "cards")), editor.el),
    panel("Delete", deletion(view, bandit.id, path`/v1/bandits/${bandit.id}`, `Gone for good with it: all that its ${bandit.scope === "per_key" ? "learners know" : "learner knows"}, its versions, its quotas${bandit.log ? ", and the log of its decisions" : ""}. Rewards that still come are refused. The catalogue ${bandit.catalogue} stays.`, ["bandits"])),
  );
  if (given && CHANGEABLE.includes(given)) editor.take(given, view.query.get("to") ?? undefined);
}

/** A merge patch, put together setting by setting, with what it sends and what it changes. */
export class PatchEditor {
  /** @param {import("./main.js").View} view @param {any} bandit */
  constructor(view, bandit) {
    this.view = view;
    this.bandit = bandit;
    this.before = /** @type {any} */ (null); // the setting with a form, as its fields say it at first
    this.shown = h("div", {});
    this.form = new Form(
      [
        { name: "name", label: "Setting", kind: "select", options: CHANGEABLE, value: "exploration" },
        ...FORM_FIELDS,
        { name: "value", label: "New value, as JSON", kind: "json", value: "", loc: "·", hint: "An object is merged into what is there; null stands for the default." },
      ],
      { submit: "Change the bandit", act: () => this.apply(), changed: () => this.draw(), label: "A change" },
    );
    this.form.inputs.get("name").addEventListener("change", () => this.take(this.form.text("name")));
    this.el = panel("Change a setting", h("p", {}, "Learners are kept. Decisions that were made are rewarded by the terms that held then."), this.form.el, h("h3", {}, "Preview"), this.shown);
    this.fill("exploration");
  }

  /** Begin with a setting. @param {string} name @param {string} [text] */
  take(name, text) {
    this.fill(name, text);
    this.form.inputs.get(FORMS[name] ? fieldName(name, FORMS[name].fields[0].name) : "value").focus();
    this.el.scrollIntoView?.({ block: "nearest" });
  }

  /** @param {string} name @param {string} [text] */
  fill(name, text) {
    this.form.set("name", name);
    this.form.set("value", text ?? write(this.bandit[name] ?? null));
    /** @type {import("./forms.js").Field} */ (this.form.fields.at(-1)).loc = FORMS[name] ? "·" : name;
    for (const field of this.form.fields.slice(1)) this.form.hide(field.name, FORMS[name] ? !field.name.startsWith(fieldName(name, "")) : field.name !== "value");
    const own = FORMS[name];
    if (own) {
      const texts = (/** @type {any} */ value) => Object.entries(own.show(value)).forEach(([field, shown]) => this.form.set(fieldName(name, field), shown));
      texts(this.bandit[name] ?? null);
      this.before = this.typed(name);
      if (text) texts(merged(this.bandit[name] ?? null, read(text)));
    }
    this.draw();
  }

  /** What the fields of a setting say. @param {string} name */
  typed(name) {
    const values = this.form.values();
    return FORMS[name].make(Object.fromEntries(FORMS[name].fields.map((field) => [field.name, values[fieldName(name, field.name)]])));
  }

  get patch() {
    const name = this.form.text("name");
    return { [name]: FORMS[name] ? difference(this.before, this.typed(name)) : read(this.form.text("value") || "null") };
  }

  call() {
    return { method: "PATCH", path: path`/v1/bandits/${this.bandit.id}`, body: this.patch };
  }

  draw() {
    try {
      const [name] = Object.keys(this.patch);
      const [before, after] = [this.bandit[name], merged(this.bandit[name], this.patch[name])];
      const same = write(before) === write(after);
      this.shown.replaceChildren(
        same ? empty("Nothing changes yet.") : h("div", { role: "region", "aria-label": "What it changes" }, h("h4", {}, name), h("dl", { class: "change" }, h("dt", {}, "now"), h("dd", {}, code(before)), h("dt", {}, "then"), h("dd", {}, h("code", {}, after === null ? "the default" : plain(after))))),
        preview(this.call()),
      );
    } catch {
      this.shown.replaceChildren(empty(FORMS[this.form.text("name")] ? "A number cannot be read yet." : "The value is no JSON yet."));
    }
  }

  async apply() {
    this.form.values();
    const at = path`/v1/bandits/${this.bandit.id}`;
    const { headers, answer } = await ask({ method: "GET", path: at });
    if (answer.version !== this.bandit.version) throw new Problem({ status: 412, title: "Changed since this ETag", detail: `It is at version ${answer.version} now, and you look at ${this.bandit.version}: load the page again.` });
    const changed = await send({ ...this.call(), headers: { "if-match": headers.get("etag") ?? "*" } });
    this.view.go(["bandits", this.bandit.id, "settings"], { held: changed.version === this.bandit.version ? "same" : changed.version });
  }
}

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
async function learners(view, body, bandit) {
  const box = h("div", {});
  let cursor = "";
  const more = action("Show more", async () => {
    const page = await get(path`/v1/bandits/${bandit.id}/learners` + `?limit=50${cursor && `&cursor=${encodeURIComponent(cursor)}`}`, view.signal);
    cursor = page.next ?? "";
    more.hidden = !page.next;
    const rows = page.items.map((/** @type {any} */ each) => [link(each.key, ["keys", bandit.id, each.key]), count(each.observations), count(each.version)]);
    box.append(rows.length ? table("Learners", ["key", "#rewards", "#version"], rows) : empty("No learner has a reward yet."));
  });
  const find = new Form([{ name: "key", label: "Key" }], { submit: "Show this key", act: ({ key }) => view.go(["keys", bandit.id, key ?? "_global"]) });
  body.append(panel("Learners with rewards", bandit.scope === "per_key" ? find.el : "", box, more));
  await Promise.resolve(/** @type {any} */ (more.querySelector("button")).click());
}
