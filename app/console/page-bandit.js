// Bandit: does it work, does it explore, what is it set to and since when, and changes with a preview.

import { ask, get, list, path, Problem, send } from "./api.js";
import { chart } from "./charts.js";
import { address, button, empty, h, link, panel, redraw, table, tile } from "./dom.js";
import { between, count, decimal, duration, NONE, number, percent, plain, time } from "./format.js";
import { action, destroy, Form, preview } from "./forms.js";
import { read, write } from "./json.js";
import { mismatch } from "./linear.js";
import { bands, course, entropy, lastDecisions, names, shownArms, timeline } from "./measure.js";
import { prior } from "./prior.js";
import { CHANGEABLE, FIXED, MEANINGS, merged } from "./settings.js";

const LOOK_MS = 10_000;
const MOST_FOR_BANDS = 200_000;
const SRM_FACTOR = 1000;
const TABS = { "": "Does it work?", explore: "Does it explore?", settings: "Settings", versions: "Versions", learners: "Learners", prior: "What people share", quotas: "Quotas" };

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  if (!parts[0]) {
    const bandits = await names("bandits", signal);
    const rows = bandits.map((each) => [link(each.id, ["bandits", each.id]), link(each.catalogue, ["catalogues", each.catalogue]), each.policy, each.scope, each.log ? "yes" : "no", each.holdout ? percent(each.holdout.share) : "none", count(each.version)]);
    root.append(panel("All bandits", bandits.length ? table("Bandits", ["bandit", "catalogue", "policy", "learners", "keeps a log", "#holdout", "#version"], rows) : empty("There is none yet. ", link("Make one on the overview", []), ".")));
    return;
  }
  const [name, tab = ""] = parts;
  const bandit = await get(path`/v1/bandits/${name}`, signal, tab === "settings" ? read : undefined);
  const tabs = Object.entries(TABS).filter(([part]) => part !== "prior" || bandit.prior === "learned").map(([part, text]) => h("a", { href: address(["bandits", name, part].filter(Boolean)), "aria-current": part === tab ? "page" : null }, text));
  root.append(
    h("p", {}, `Policy ${bandit.policy} over `, link(bandit.catalogue, ["catalogues", bandit.catalogue]), ". ", link("Try it", ["try", name]), " · ", link("What if", ["what-if", name]), " · ", link("Decisions", ["decisions", name])),
    h("nav", { class: "tabs", "aria-label": "Parts of this page" }, tabs),
    ...(bandit.move ? [h("p", { class: "warning" }, `Moved from ${bandit.move.from} to ${bandit.move.to}: what was learned is being carried, ${percent(bandit.move.carried)} is done.`)] : []),
    ...(bandit.warnings ?? []).map((/** @type {string} */ words) => h("p", { class: "warning" }, words)),
  );
  const body = h("div", { class: "page" });
  root.append(body);
  const needsLog = tab === "" || tab === "explore";
  if (needsLog && !bandit.log) body.append(noLog(name));
  else if (tab === "explore") exploring(view, body, bandit);
  else if (tab === "settings") settings(view, body, bandit);
  else if (tab === "versions") await versions(view, body, bandit);
  else if (tab === "learners") await learners(view, body, bandit);
  else if (tab === "prior") prior(view, body, bandit);
  else if (tab === "quotas") await quotas(view, body, bandit);
  else await working(view, body, bandit);
}

/** @param {string} name */
export function noLog(name) {
  return panel("No log", empty("This bandit keeps no log of its decisions, so nothing is known of what it earns. ", h("a", { href: address(["bandits", name, "settings"], { set: "log", to: "{}" }) }, "Keep one"), "."));
}

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
async function working(view, body, bandit) {
  const { signal } = view;
  const note = h("div", {});
  const tiles = h("div", { class: "tiles" });
  const warnings = h("div", {});
  const pieces = h("div", {});
  const looks = h("div", {});
  const places = h("div", {});
  body.append(h("div", {}, note, tiles, warnings, places), h("div", { class: "cols" }, panel("Mean reward over time", pieces), panel("What was known when", looks)));
  const since = await holdoutSince(bandit, signal);
  let drawnOf = -1;
  view.live(LOOK_MS, note, async () => {
    const { report, from, bucketS } = await timeline(bandit.id, since, signal);
    const groups = Object.fromEntries(report.groups.map((/** @type {any} */ each) => [each.group, each]));
    const { policy, holdout } = groups;
    redraw(tiles, report, () => [
      tile("Lift over the holdout", decimal(report.lift.value), report.lift.interval ? `95 %: ${between(report.lift.interval)}` : "no interval yet", report.lift.interval?.[0] > 0 ? "good" : report.lift.interval?.[1] < 0 ? "bad" : ""),
      tile("Policy", decimal(policy?.mean_reward), `mean of ${count(policy?.decisions ?? 0)} decisions, ${between(policy?.interval)}`),
      tile("Holdout", decimal(holdout?.mean_reward), bandit.holdout ? `mean of ${count(holdout?.decisions ?? 0)} decisions, ${between(holdout?.interval)}` : "none is set"),
      tile("Rewarded", percent(policy?.decisions ? policy.rewarded / policy.decisions : NaN), "of the policy's decisions"),
    ]);
    const verdict = await mismatched(bandit, policy?.decisions ?? 0, holdout?.decisions ?? 0, signal);
    redraw(warnings, [report.warnings, verdict, bandit.holdout], () => [
      verdict && h("p", { class: "warning" }, h("strong", {}, "Sample ratio mismatch. "), verdict),
      report.warnings.map((/** @type {string} */ words) => h("p", { class: "warning" }, words)),
      !bandit.holdout && h("p", { class: "warning" }, "Without a holdout nobody knows what would have been earned otherwise. ", h("a", { href: address(["bandits", bandit.id, "settings"], { set: "holdout", to: '{"share": 0.1}' }) }, "Set one"), "."),
    ]);
    redraw(places, report.places, () => (report.places.length ? placesOf(report.places) : []));
    const series = [
      { name: "policy", kind: "policy", points: course(report, "policy") },
      ...(holdout?.decisions ? [{ name: "holdout", kind: "holdout", points: course(report, "holdout") }] : []),
    ];
    redraw(pieces, series, () => chart("lines", { label: "Mean reward of a decision", unit: "reward a decision", x: "time", series, none: "No decision is in the log yet." }));
    if (pieces.firstChild) pieces.querySelector("figcaption")?.replaceChildren(`each point: ${duration(bucketS)}`);
    const total = (policy?.decisions ?? 0) + (holdout?.decisions ?? 0);
    if (total === drawnOf) return;
    drawnOf = total;
    if (total > MOST_FOR_BANDS) return redraw(looks, "many", () => empty(`The log has ${count(total)} decisions; reading it again and again would take long. The bands as of now are above.`));
    const buckets = report.buckets.filter((/** @type {any} */ each) => each.groups.some((/** @type {any} */ group) => group.decisions));
    if (!buckets.length) return redraw(looks, "none", () => empty("No decision is in the log yet."));
    const end = buckets[buckets.length - 1].from + bucketS * 1000;
    const known = await bands(bandit.id, Math.max(from, buckets[0].from), end, signal);
    const of = (/** @type {string} */ group) => known.map(({ at, report: then }) => {
      const own = then.groups.find((/** @type {any} */ each) => each.group === group);
      return { x: at, y: own?.decisions ? own.mean_reward : null, low: own?.interval?.[0], high: own?.interval?.[1] };
    });
    const both = [{ name: "policy", kind: "policy", points: of("policy") }, ...(holdout?.decisions ? [{ name: "holdout", kind: "holdout", points: of("holdout") }] : [])];
    redraw(looks, both, () => [chart("lines", { label: "Mean of all decisions until then, with bands", unit: "reward a decision", x: "time", series: both }), h("p", { class: "hint" }, `Bands hold the true mean with 95 %, however often you look (${report.interval_kind}; drawn by ${report.unit}).`)]);
  });
}

/** What the places of lists have earned, and how likely random lists say that each is looked at. @param {any[]} places */
function placesOf(places) {
  const rows = places.map((each) => [each.group, count(each.place), count(each.decisions), decimal(each.mean_reward), decimal(each.examination), between(each.interval)]);
  return h("details", {}, h("summary", {}, "Places of lists"), table("Places of lists", ["group", "#place", "#decisions", "#mean reward", "#examination", "#95 %"], rows));
}

/** Since when the share of the holdout is what it is, in ms. @param {any} bandit @param {AbortSignal} signal */
async function holdoutSince(bandit, signal) {
  const { items } = await list(path`/v1/bandits/${bandit.id}/versions`, 100, signal);
  let since = null;
  for (const version of items) {
    if (write(version.holdout) !== write(bandit.holdout)) break;
    since = version.since_ms;
  }
  return since;
}

/** Words if the groups' sizes do not fit the share. @param {any} bandit @param {number} policy @param {number} holdout @param {AbortSignal} signal */
async function mismatched(bandit, policy, holdout, signal) {
  const share = bandit.holdout?.share;
  if (!share || share >= 1 || !policy) return null;
  let [first, second, what] = [policy, holdout, "decisions"];
  if (bandit.scope === "per_key") {
    // Keys are what is drawn: those of the last decisions.
    const keys = new Map((await lastDecisions(bandit.id, bandit.log.keep_s, signal)).map((row) => [row.key, row.group]));
    const groups = [...keys.values()];
    [first, second, what] = [groups.filter((group) => group === "policy").length, groups.filter((group) => group === "holdout").length, "keys among the last decisions"];
  }
  if (mismatch(first, second, share) < SRM_FACTOR) return null;
  return `${count(second)} of ${count(first + second)} ${what} are in the holdout, which should be ${percent(share)}. Something loses decisions of one group: do not trust the comparison.`;
}

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
function exploring(view, body, bandit) {
  const note = h("div", {});
  const tiles = h("div", { class: "tiles" });
  const most = h("div", {});
  const best = h("div", {});
  const fresh = h("div", {});
  const curve = h("div", {});
  body.append(h("div", {}, note, tiles), h("div", { class: "cols" }, panel("How evenly it shows", curve), panel("How fast arms are tried", fresh), panel("Shown most", most), panel("Best paid", best)));
  view.live(LOOK_MS, note, async () => {
    const [all, catalogue] = await Promise.all([lastDecisions(bandit.id, bandit.log.keep_s, view.signal), get(path`/v1/catalogues/${bandit.catalogue}`, view.signal)]);
    const rows = all.filter((row) => row.group !== "holdout");
    const arms = shownArms(rows);
    const bits = entropy(rows);
    redraw(tiles, [rows.length, bits, catalogue.size], () => [
      tile("Entropy", `${number(bits)} bits`, `as ${number(2 ** bits)} arms shown alike; all alike: ${number(Math.log2(Math.max(1, catalogue.size)))} bits`),
      tile("Arms ever shown", percent(catalogue.size ? arms.length / catalogue.size : NaN), `${count(arms.length)} of ${count(catalogue.size)}`),
      tile("Looked at", count(rows.length), "last decisions of the policy"),
      tile("Since", rows.length ? time(rows[0].time) : "–", "the oldest of them"),
    ]);
    const windows = pieces(rows, 12);
    const even = [{ name: "entropy", kind: "policy", points: windows.map((own) => ({ x: own[0].time, y: entropy(own) })) }];
    redraw(curve, even, () => chart("lines", { label: "Entropy of what is shown", unit: "bits", x: "time", least: 0, series: even, none: "No decision is in the log yet." }));
    const seen = new Set();
    const tried = [{ name: "arms shown at least once", kind: "third", points: rows.map((row, place) => {
      for (const arm of row.arms) seen.add(arm.id);
      return { x: place + 1, y: seen.size };
    }).filter((_, place) => place % Math.ceil(rows.length / 60 || 1) === 0) }];
    redraw(fresh, tried, () => chart("lines", { label: "Arms shown at least once", unit: "arms", x: "decisions", least: 0, series: tried, none: "No decision is in the log yet." }));
    const bar = (/** @type {any} */ arm, /** @type {any} */ more) => ({ label: arm.id, href: address(["catalogues", bandit.catalogue], { arm: arm.id }), ...more });
    redraw(most, arms, () => chart("bars", { label: "Arms shown most", unit: "times shown", bars: arms.slice(0, 12).map((arm) => bar(arm, { value: arm.shown })), none: "Nothing was shown yet." }));
    const paid = arms.filter((arm) => arm.size > 2).sort((a, b) => Number(b.mean) - Number(a.mean)).slice(0, 12);
    redraw(best, paid, () => chart("bars", { label: "Arms with the highest mean reward", unit: "mean reward", spanName: "± 2 standard errors", bars: paid.map((arm) => bar(arm, { value: arm.mean, low: arm.low, high: arm.high, note: `${number(arm.mean, 2)} (${arm.size})`, kind: "third" })), none: "No arm has three rewards yet." }));
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
      const value = h("code", {}, plain(bandit[name]));
      const now = name in used && typeof bandit[name] === "string" ? h("span", { class: "meaning" }, `now ${number(used[name])}`) : null;
      const change = FIXED.has(name) ? h("span", { class: "soft" }, "as it was made") : button("Change", () => editor.take(name), { class: "quiet", "aria-label": `Change ${name}` });
      return [h("span", {}, h("strong", {}, name), h("span", { class: "meaning" }, meaning)), h("span", {}, value, now), change];
    });
  const editor = new PatchEditor(view, bandit);
  const given = view.query.get("set");
  body.append(
    h("div", { class: "cols" }, panel("Settings", table("Settings", ["setting", "value", ""], rows)), editor.el),
    panel("Delete", destroy(`Delete ${bandit.id}`, bandit.id, "The bandit and all that it has learned are gone for good.", async () => {
      await send({ method: "DELETE", path: path`/v1/bandits/${bandit.id}` });
      view.go(["bandits"]);
    })),
  );
  if (given && CHANGEABLE.includes(given)) editor.take(given, view.query.get("to") ?? undefined);
}

/** A merge patch, put together setting by setting, with what it sends and what it changes. */
export class PatchEditor {
  /** @param {import("./main.js").View} view @param {any} bandit */
  constructor(view, bandit) {
    this.view = view;
    this.bandit = bandit;
    this.shown = h("div", {});
    this.form = new Form(
      [
        { name: "name", label: "Setting", kind: "select", options: CHANGEABLE, value: "exploration" },
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
    this.form.inputs.get("value").focus();
    this.el.scrollIntoView?.({ block: "nearest" });
  }

  /** @param {string} name @param {string} [text] */
  fill(name, text) {
    this.form.set("name", name);
    this.form.set("value", text ?? write(this.bandit[name] ?? null));
    this.form.fields[1].loc = name;
    this.draw();
  }

  get patch() {
    return { [this.form.text("name")]: read(this.form.text("value") || "null") };
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
        same ? empty("Nothing changes yet.") : table("What it changes", ["setting", "now", "then"], [[name, h("code", {}, plain(before)), h("code", {}, after === null ? "the default" : plain(after))]]),
        preview(this.call()),
      );
    } catch {
      this.shown.replaceChildren(empty("The value is no JSON yet."));
    }
  }

  async apply() {
    this.form.values();
    const at = path`/v1/bandits/${this.bandit.id}`;
    const { headers, answer } = await ask({ method: "GET", path: at });
    if (answer.version !== this.bandit.version) throw new Problem({ status: 412, title: "Changed since this ETag", detail: `It is at version ${answer.version} now, and you look at ${this.bandit.version}: load the page again.` });
    await send({ ...this.call(), headers: { "if-match": headers.get("etag") ?? "*" } });
    this.view.go(["bandits", this.bandit.id, "settings"]);
  }
}

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
async function versions(view, body, bandit) {
  const { items } = await list(path`/v1/bandits/${bandit.id}/versions`, 200, view.signal, read);
  const rows = items.map((version, place) => {
    const before = items[place + 1];
    const changed = before ? Object.keys(MEANINGS).filter((name) => write(before[name]) !== write(version[name])) : [];
    const what = changed.map((name) => h("div", {}, `${name}: `, h("code", {}, plain(before[name])), " → ", h("code", {}, plain(version[name]))));
    return [count(version.version), version.since_ms ? time(version.since_ms) : "not known", version.by ?? NONE, before ? what : "made, or older versions are gone"];
  });
  body.append(panel("Versions", h("p", {}, "Who: the name of the API key. Without keys, and of changes before names were kept, it is not known."), table("Versions", ["#version", "since", "who", "what changed"], rows)));
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

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
async function quotas(view, body, bandit) {
  const { items } = await list(path`/v1/bandits/${bandit.id}/quotas`, 200, view.signal);
  const rows = items.map((quota) => {
    const window = quota.window === null ? "not now" : quota.window[1] === null ? "for ever" : `until ${time(quota.window[1])}`;
    const counts = quota.signal ? `${quota.counts}: ${quota.signal}` : quota.counts;
    return [quota.id, h("code", {}, plain(quota.filter ?? quota.arm)), counts, quota.pace, count(quota.most), count(quota.used), count(quota.reserved), count(quota.left), window, quota.ends === null ? NONE : time(Date.parse(quota.ends))];
  });
  body.append(panel("Quotas", h("p", {}, "Reserved is what processes hold and may spend without asking. Ends: when it is used up, if it goes on as since the window began."), table("Quotas", ["quota", "arms", "counts", "pace", "#most", "#used", "#reserved", "#left", "window", "ends"], rows, "None is set.")));
}
