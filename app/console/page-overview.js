// Overview: is it well, what does it do, and what could be next.

import { get, list, Metrics, origin, path, send } from "./api.js";
import { chart } from "./charts.js";
import { boxes, button, empty, h, link, loading, panel, redraw, skeleton, table, tile } from "./dom.js";
import { bytes, count, duration, number, percent, sentence } from "./format.js";
import { Form, preview, previewOf, problemBox } from "./forms.js";
import { fieldOf } from "./json.js";
import { course, holdoutSince, timeline } from "./measure.js";
import { alarmsOf, catalogueAlarms, outcome } from "./outcome.js";
import * as shop from "./shop.js";

const LOOK_MS = 3000;
const LISTED_EVERY = 3;
const REPORT_MS = 20_000;
const MOST = 24;
const AT_ONCE = 4; // of some 18 reports that a service takes at a time, from all who look
const VISITORS = 500;
const CHOICES = /\/choose(\/batch)?$/;
const ONE = /\/choose$/;
const BATCH = /\/choose\/batch$/;

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal } = view;
  const [health, next] = boxes(2);
  const tiles = h("div", { class: "tiles" });
  const bandits = panel("Bandits");
  const catalogues = panel("Catalogues");
  const rows = { bandits: h("div", {}, skeleton()), catalogues: h("div", {}, skeleton()) };
  tiles.append(skeleton(2));
  const order = h("select", { value: view.query.get("sort") ?? "attention" }, Object.entries(ORDERS).map(([name, [text]]) => h("option", { value: name }, text)));
  bandits.append(h("label", { class: "inline" }, "Sorted by ", order), rows.bandits);
  catalogues.append(rows.catalogues);
  root.append(health, bandits, catalogues, panel("The service", tiles), next);
  const rates = new Rates();
  /** @type {Map<string, any>} */
  const sparks = new Map();
  /** @type {NextSteps | undefined} */
  let steps;

  let turn = 0;
  /** @type {Promise<[import("./api.js").Page, import("./api.js").Page, any]>} */
  let lists;
  const look = view.live(LOOK_MS, health, async () => {
    if (turn++ % LISTED_EVERY === 0) {
      lists = Promise.all([list("/v1/bandits", 200, signal), list("/v1/catalogues", 200, signal), get("/v1/policies", signal)]);
      lists.catch(() => (turn = 0)); // it is awaited below, unless what is asked first fails
    }
    const [ready, text, status] = await Promise.all([get("/readyz", signal).catch(unready), get("/metrics", signal).catch(unseen), get("/v1/status", signal).catch(unseen)]);
    const metrics = new Metrics(text ?? "");
    const seen = rates.read(metrics);
    const words = wellness(ready, status);
    redraw(tiles, { ready, status, seen }, () => (status ? figures(ready, status, metrics, seen) : []));
    const [made, stocked, policies] = await lists;
    const draw = () => redraw(rows.bandits, [made, order.value, [...sparks]], () => (made.items.length ? banditTable(made.items, sparks, order.value) : empty("None yet. A bandit chooses among the arms of a catalogue, and learns from rewards.")));
    draw();
    order.onchange = () => (view.remember({ sort: order.value }), draw());
    redraw(rows.catalogues, stocked, () => (stocked.items.length ? catalogueTable(stocked.items) : empty("None yet. A catalogue holds arms: the items to choose from, each a vector.")));
    if (!steps) next.append((steps = new NextSteps(view, () => ((turn = 0), look()))).el);
    steps.update(made.items, stocked.items, policies.items);
    const wrong = () => redraw(health, [words, [...sparks].map(([, { alarms }]) => alarms)], () => toldOf(words, made.items, sparks));
    wrong();
    await readSparks(made.items, sparks, () => (draw(), wrong()), signal);
  });
}

/** @param {any} error */
function unready(error) {
  if (error.status === 503) return { status: error.message, backlog: NaN, lag_s: NaN };
  throw error;
}

/** What an API key of some bandits does not see. @param {any} error */
function unseen(error) {
  if (error.status === 404) return null;
  throw error;
}

/** What is not as it should be, in the words of the service. @param {any} ready @param {any} status @returns {[string, string][]} */
function wellness(ready, status) {
  /** @type {{good: boolean | null, text: string}[]} */
  const found = status ? status.findings.filter((/** @type {any} */ each) => !each.good) : [{ good: null, text: "this API key is for some bandits or catalogues, and does not see the figures of the service" }];
  return [
    ...(ready.status === "ready" ? [] : [/** @type {[string, string]} */ (["problem", `Not ready: ${ready.status}.`])]),
    ...found.map(({ good, text }) => /** @type {[string, string]} */ ([good === false ? "problem" : "warning", sentence(text)])),
  ];
}

/** What is wrong with the service and its bandits, or that nothing is. @param {[string, string][]} words @param {any[]} bandits @param {Map<string, any>} sparks */
function toldOf(words, bandits, sparks) {
  const ill = bandits.filter(({ id }) => sparks.get(id)?.alarms.length);
  const looked = bandits.slice(0, MOST).every(({ id }) => sparks.has(id));
  return [
    words.map(([kind, text]) => h("p", { class: kind }, text)),
    ill.length > 0 && h("p", { class: "warning alarm" }, `${ill.length === 1 ? "A bandit needs" : `${count(ill.length)} bandits need`} attention: `, ill.map(({ id }, place) => [place ? ", " : "", link(id, ["bandits", id])]), "."),
    !words.length && !ill.length && looked && h("p", { class: "done" }, "Nothing is wrong. ", h("span", { class: "soft" }, `The checks of the service are well${bandits.length ? `, and so ${bandits.length === 1 ? "is its bandit" : bandits.length > MOST ? `are the first ${count(MOST)} bandits` : `are its ${count(bandits.length)} bandits`}` : ""}.`)),
  ];
}

/** Rates between two looks, by process: with several, each look may be at another one. */
class Rates {
  constructor() {
    /** @type {Map<number, {at: number, choices: number, rewards: number, rate: number[]}>} by when they started */
    this.processes = new Map();
  }

  /** @param {Metrics} metrics of one process, or of several that each have the label `process` */
  read(metrics) {
    const now = performance.now();
    for (const { labels, value: born } of metrics.find("process_start_time_seconds")) {
      const its = labels.process ? { process: labels.process } : undefined;
      const choices = metrics.sum("shortlist_requests_total", { route: CHOICES, status: "200", ...its });
      const rewards = metrics.sum("shortlist_rewards_total", { outcome: "accepted", ...its });
      const before = this.processes.get(born);
      let rate = before?.rate ?? [NaN, NaN];
      if (before && now - before.at > 500) rate = [(choices || 0) - (before.choices || 0), (rewards || 0) - (before.rewards || 0)].map((difference) => (1000 * difference) / (now - before.at));
      this.processes.set(born, { at: now, choices, rewards, rate });
    }
    for (const [name, each] of this.processes) if (now - each.at > 60_000) this.processes.delete(name);
    const all = [...this.processes.values()];
    const sum = (/** @type {number} */ place) => all.reduce((total, each) => total + each.rate[place], 0);
    return { choices: sum(0), rewards: sum(1), p99: quantile(histogram(metrics, ONE), 0.99), batchP99: quantile(histogram(metrics, BATCH), 0.99), processes: all.length };
  }
}

/** Pairs of a bound in seconds and how many requests took at most so long. @param {Metrics} metrics @param {RegExp} route */
function histogram(metrics, route) {
  /** @type {Map<number, number>} */
  const found = new Map();
  for (const { labels, value } of metrics.find("shortlist_request_seconds_bucket", { route })) {
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    found.set(bound, (found.get(bound) ?? 0) + value);
  }
  return [...found].sort((a, b) => a[0] - b[0]);
}

/** @param {number[][]} buckets @param {number} share */
function quantile(buckets, share) {
  const total = buckets[buckets.length - 1]?.[1] ?? 0;
  let [low, below] = [0, 0];
  for (const [bound, until] of buckets) {
    if (total && until >= share * total) return bound === Infinity ? low : low + ((bound - low) * (share * total - below)) / (until - below || 1);
    [low, below] = [bound, until];
  }
  return NaN;
}

/** @param {any} ready @param {any} status @param {Metrics} metrics @param {any} seen */
function figures(ready, status, metrics, seen) {
  const isReady = ready.status === "ready";
  const refused = metrics.find("shortlist_rate_refused_total").filter(({ value }) => value > 0);
  const together = metrics.find("process_resident_memory_bytes").length;
  const names = [...new Set(refused.map(({ labels }) => labels.key))].join(", ");
  return [
    tile("State", isReady ? "Ready" : "Not ready", `up ${duration(status.uptime_s)}, ${status.version}`, isReady ? "good" : "bad"),
    tile("Requests for choices", number(seen.choices, 2), "a second; a batch is one"),
    tile("Rewards", number(seen.rewards, 2), "a second"),
    tile("One choice, p99", duration(seen.p99), "since the start"),
    tile("A batch, p99", duration(seen.batchP99), "whatever its size, since the start"),
    ...(refused.length ? [tile("Refused", count(metrics.sum("shortlist_rate_refused_total")), `requests beyond the rate of the API key ${names}`)] : []),
    tile("Backlog", count(ready.backlog), ready.backlog ? `rewards, the oldest ${duration(ready.lag_s)}` : "rewards wait"),
    tile("Memory", bytes(metrics.sum("process_resident_memory_bytes")), together > 1 ? `of ${count(together)} processes` : "of this process"),
    tile("Processor", percent(metrics.sum("process_cpu_seconds_total") / status.uptime_s), "of a core, in the mean since the start"),
    tile("Processes", count(seen.processes), "seen in the last minute"),
    tile("Arms", count(status.arms), `catalogues: ${count(status.catalogues)}`),
    tile("Learners", count(status.cached_learners), `in memory, ${bytes(status.cached_learner_bytes)}`),
  ];
}

/**
 * What the table says of a bandit besides its settings, read now and then: means over the window, the course, the lift, and what
 * needs attention. @param {any[]} bandits @param {Map<string, any>} sparks @param {() => void} told @param {AbortSignal} signal
 */
async function readSparks(bandits, sparks, told, signal) {
  const moment = performance.now();
  const left = bandits.slice(0, MOST).filter(({ id }) => !(moment - sparks.get(id)?.at < REPORT_MS));
  /** @type {Map<string, Promise<string[]>>} many bandits have one catalogue */
  const ofCatalogues = new Map();
  const read = async () => {
    for (let bandit = left.shift(); bandit; bandit = left.shift()) {
      const name = bandit.catalogue;
      if (!ofCatalogues.has(name)) ofCatalogues.set(name, get(path`/v1/catalogues/${name}`, signal).then(catalogueAlarms));
      const [alarms, spark] = await Promise.all([ofCatalogues.get(name), bandit.log ? sparkOf(bandit, signal) : { alarms: [] }]);
      sparks.set(bandit.id, { at: moment, ...spark, alarms: [...(alarms ?? []), ...spark.alarms] });
      told();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, read));
}

/** What the log of a bandit says. @param {any} bandit @param {AbortSignal} signal */
async function sparkOf(bandit, signal) {
  const { since } = await holdoutSince(bandit, signal);
  const [{ report, from }, last] = await Promise.all([timeline(bandit.id, since, signal), get(path`/v1/bandits/${bandit.id}/log?order=desc&limit=200`, signal)]);
  const policy = report.groups.find((/** @type {any} */ each) => each.group === "policy");
  const values = course(report, "policy").map((/** @type {any} */ point) => point.y);
  return { mean: policy?.decisions ? policy.mean_reward : null, values, lift: report.lift, told: outcome(bandit, report, from), decisions: policy?.decisions ?? 0, alarms: alarmsOf(bandit, report, last.items) };
}

/** @type {Record<string, [string, (each: {bandit: any, spark: any, alarms: string[]}) => number | string]>} */
const ORDERS = {
  attention: ["what needs attention", ({ alarms, spark }) => -2 * alarms.length - Number(spark?.lift?.interval?.[1] < 0)],
  lift: ["lift, the best first", ({ spark }) => -(spark?.lift?.value ?? -Infinity)],
  mean: ["mean reward, the best first", ({ spark }) => -(spark?.mean ?? -Infinity)],
  decisions: ["decisions, the most first", ({ spark }) => -(spark?.decisions ?? 0)],
  name: ["name", ({ bandit }) => bandit.id],
};

/** @param {any[]} bandits @param {Map<string, any>} sparks @param {string} order */
function banditTable(bandits, sparks, order) {
  const by = fieldOf(ORDERS, order)?.[1] ?? ORDERS.attention[1];
  const rows = bandits.map((bandit) => ({ bandit, spark: sparks.get(bandit.id), alarms: sparks.get(bandit.id)?.alarms ?? [] }));
  rows.sort((a, b) => (by(a) < by(b) ? -1 : by(a) > by(b) ? 1 : 0));
  const read = new Set(bandits.slice(0, MOST).map(({ id }) => id));
  const lines = rows.map(({ bandit, spark, alarms }) => {
    const name = h("span", {}, link(bandit.id, ["bandits", bandit.id]), h("span", { class: "meaning" }, `${bandit.policy} over `, link(bandit.catalogue, ["catalogues", bandit.catalogue])));
    const tryIt = h("span", {}, link("Try it", ["try", bandit.id]));
    if (!spark && read.has(bandit.id)) return [name, loading(), loading(), loading(), loading(), tryIt];
    const drawn = spark?.lift ? chart("spark", { label: `mean reward of ${bandit.id}`, unit: "a decision", values: spark.values, mean: spark.mean }) : h("span", { class: "soft" }, bandit.log ? "" : "keeps no log");
    const look = alarms.length ? h("span", { class: "alarm" }, alarms.join("; ")) : "";
    const told = spark?.told && h("span", {}, h("span", { class: `told ${spark.told.kind}` }, spark.told.sentence), h("span", { class: "meaning" }, spark.told.numbers));
    return [name, told ?? "", drawn, count(spark?.decisions), look, tryIt];
  });
  return table("Bandits", ["bandit", "is it better?", "policy's mean reward", "#its decisions", "attention", ""], lines, "", "cards");
}

/** @param {any[]} catalogues */
export function catalogueTable(catalogues) {
  const rows = catalogues.map((each) => [link(each.id, ["catalogues", each.id]), count(each.size), count(each.dim), each.index.kind, percent(each.index.recall_at_1), each.index.state]);
  return table("Catalogues", ["catalogue", "#arms", "#numbers an arm", "searched", "#recall", "state"], rows, "", "cards");
}

/** What could be done next: each step shows the calls that it makes. */
class NextSteps {
  /** @param {import("./main.js").View} view @param {() => void} done */
  constructor(view, done) {
    this.view = view;
    this.done = done;
    this.heading = h("h2", {});
    this.load = button("Load the example shop", () => this.loadShop(), { class: "primary" });
    this.progress = h("progress", { max: VISITORS, value: 0, hidden: true, "aria-label": "visitors so far" });
    this.said = h("div", { class: "soft", role: "status" });
    this.bandit = this.banditForm();
    const [shown, draw] = previewOf(this.bandit, (values) => [makeBandit(values)]);
    this.drawBandit = draw;
    const own = panel("Your own bandit", this.bandit.el, shown);
    this.el = h("div", {}, this.heading, h("div", { class: "steps" }, this.tablesPanel(), this.shopPanel(), this.cataloguePanel(), own));
  }

  /** @param {any[]} bandits @param {any[]} catalogues @param {any[]} policies */
  update(bandits, catalogues, policies) {
    this.heading.textContent = bandits.length ? "More to do" : "Nothing is here yet: four ways to begin";
    if (!this.load.disabled) this.load.textContent = bandits.some((each) => each.id === shop.BANDIT) ? `Send ${VISITORS} more visitors` : "Load the example shop";
    const select = this.bandit.inputs.get("catalogue");
    const names = catalogues.map((each) => each.id);
    redraw(select, names, () => (names.length ? names.map((name) => h("option", { value: name }, name)) : h("option", { value: "" }, "make one first")));
    const usual = policies.filter((each) => each.needs.max_dim === null);
    redraw(this.bandit.inputs.get("policy"), usual, () => usual.map(({ name, summary }) => h("option", { value: name, title: summary }, name)));
  }

  tablesPanel() {
    const words = `shortlist begin home --items items.csv --id sku \\\n  --history clicks.csv --key user --arm sku --url ${origin}`;
    return panel(
      "Your own tables",
      h("p", {}, "A table of items and a table of clicks become a bandit that knows what people share before the first visitor comes. With ", h("code", {}, "--dry-run"), " the command makes nothing, and says what that is worth beside bestsellers."),
      h("pre", {}, words),
    );
  }

  shopPanel() {
    const visits = h("pre", {}, `POST /v1/bandits/${shop.BANDIT}/choose/batch\nPOST /v1/rewards?wait=applied`);
    const made = h("div", {});
    const draw = () => redraw(made, null, () => [shop.calls().map(({ title: what, call }) => [h("h3", {}, what), preview(call)]), h("h3", {}, "and for each visitor"), visits]);
    return panel(
      "The example shop",
      h("p", {}, `240 articles, a bandit that shows one of them, and ${VISITORS} visitors who click on what they like. It is yours to delete.`),
      h("div", { class: "buttons" }, this.load),
      this.progress,
      this.said,
      h("details", { on: { toggle: draw } }, h("summary", {}, "The calls it makes"), made),
    );
  }

  async loadShop() {
    if (this.load.disabled) return;
    this.load.disabled = true;
    const { signal } = this.view;
    try {
      for (const { title: what, call } of shop.calls()) {
        this.said.textContent = `Making ${what} …`;
        await send(call, signal);
      }
      this.progress.hidden = false;
      const told = (/** @type {number} */ done) => {
        this.progress.value = done;
        this.said.textContent = `${count(done)} of ${count(VISITORS)} visitors`;
      };
      await shop.visit(VISITORS, told, signal);
      this.said.replaceChildren(h("p", {}, "Done. ", link("Does it work?", ["bandits", shop.BANDIT]), " ", link("Try it", ["try", shop.BANDIT])));
    } catch (error) {
      if (!signal.aborted) this.said.replaceChildren(problemBox(error));
    }
    this.load.disabled = false;
    this.done();
  }

  cataloguePanel() {
    const make = (/** @type {any} */ values) => ({ method: "PUT", path: path`/v1/catalogues/${values.id ?? "…"}`, body: { dim: values.dim ?? null } });
    const fill = (/** @type {any} */ values) => ({ method: "PUT", path: path`/v1/catalogues/${values.id ?? "…"}/arms`, body: { arms: values.arms ?? [] } });
    const said = h("p", { role: "status" });
    const form = new Form(
      [
        { name: "id", label: "Name of the catalogue", value: "films" },
        { name: "dim", label: "Numbers an arm", kind: "number", value: "2", hint: "The length of each vector." },
        { name: "arms", label: "Arms", kind: "json", value: '[{"id": "alien", "features": [0.9, 0.1]}, {"id": "amelie", "features": [0.1, 0.9]}]', hint: "More later, by import or with a client." },
      ],
      {
        submit: "Make a catalogue",
        changed: () => draw(),
        act: async (values) => {
          await send(make(values));
          await send(fill(values));
          said.replaceChildren("Made: ", link(values.id, ["catalogues", values.id]));
          this.done();
        },
      },
    );
    const [shown, draw] = previewOf(form, (values) => [make(values), fill(values)]);
    return panel("Your own catalogue", form.el, said, shown);
  }

  banditForm() {
    return new Form(
      [
        { name: "id", label: "Name of the bandit", value: "home" },
        { name: "catalogue", label: "Catalogue", kind: "select", options: [["", "make one first"]], hint: "The arms that it chooses from." },
        { name: "policy", label: "Policy", kind: "select", options: ["sub_ts"], hint: "sub_ts: Thompson sampling over an index." },
        { name: "scope", label: "Learners", kind: "select", options: [["global", "one for all (global)"], ["per_key", "one for each key (per_key)"]] },
      ],
      {
        submit: "Make a bandit",
        changed: () => this.drawBandit?.(),
        act: async (values) => {
          await send(makeBandit(values));
          this.view.go(["try", values.id]);
        },
      },
    );
  }
}

/** @param {any} values */
const makeBandit = ({ id, ...body }) => ({ method: "PUT", path: path`/v1/bandits/${id ?? "…"}`, body: { ...body, log: {} } });
