// Campaigns: slates and centres that are asked for and told about, with their bounds narrowing.

import { get, path, send } from "./api.js";
import { chart } from "./charts.js";
import { boxes, empty, facts, h, link, panel, redraw, table, tile, warning } from "./dom.js";
import { count, decimal, number, percent } from "./format.js";
import { action, deletion, Form, previewOf } from "./forms.js";
import { names, titlesOf } from "./measure.js";

const LOOK_MS = 2000;

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  const [kind, name] = parts;
  if (kind && name) {
    await (kind === "centers" ? centers(view, name) : slates(view, name));
    return;
  }
  const campaigns = await Promise.all([names("slates", signal), names("centers", signal)]).catch((error) => (error.status === 404 ? null : Promise.reject(error)));
  if (!campaigns) return void root.append(empty("There are no campaigns here: this service does not load the plug-in shortlist-campaigns, or your key cannot use them."));
  const [slateNames, centerNames] = campaigns;
  const rows = [...slateNames.map((each) => [link(each.id, ["campaigns", "slates", each.id]), "slates: the best k arms, from totals"]), ...centerNames.map((each) => [link(each.id, ["campaigns", "centers", each.id]), "centres, from noisy distances"])];
  root.append(panel("Campaigns", table("Campaigns", ["campaign", "what it finds"], rows, "None yet: a campaign asks for slates to show, is told their totals, and finds the best one; one of centres asks how far apart two points are.")), h("div", { class: "cols" }, make(view, "slates"), make(view, "centers")));
}

/** @type {Record<"slates" | "centers", {title: string, fields: import("./forms.js").Field[]}>} */
const NEW = {
  slates: {
    title: "A campaign of slates",
    fields: [
      { name: "id", label: "Name", value: "front-page" },
      { name: "arms", label: "Arms", kind: "list", value: "art, books, cars, dance, earth", hint: "Ids, between commas." },
      { name: "k", label: "Arms of a slate (k)", kind: "number", value: "2" },
      { name: "noise_std", label: "Noise of a total", kind: "number", value: "0.5", hint: "Its standard deviation." },
      { name: "epsilon", label: "epsilon", kind: "number", value: "0.5", hint: "How far from the best is good enough." },
      { name: "delta", label: "delta", kind: "number", value: "0.05" },
      { name: "method", label: "Method", kind: "select", options: ["saqm", "sa_foa", "icb", "exhaustive"] },
    ],
  },
  centers: {
    title: "A campaign of centres",
    fields: [
      { name: "id", label: "Name", value: "stations" },
      { name: "points", label: "Points", kind: "list", value: "north, east, south, west, hub", hint: "Ids, between commas." },
      { name: "k", label: "Centres (k)", kind: "number", value: "2" },
      { name: "noise", label: "Kind of noise", kind: "select", options: ["gaussian", "bernoulli"], hint: "bernoulli: answers are 0 or 1." },
      { name: "noise_std", label: "Noise of a distance", kind: "number", hint: "Its standard deviation; empty: estimated." },
      { name: "epsilon", label: "epsilon", kind: "number", hint: "How far from the best is good enough; empty: a tenth of the noise." },
      { name: "delta", label: "delta", kind: "number", value: "0.1" },
      { name: "method", label: "Method", kind: "select", options: ["ns_ts", "ns_ucb", "ns_tands"] },
    ],
  },
};

/** @param {import("./main.js").View} view @param {"slates" | "centers"} kind */
function make(view, kind) {
  const { title, fields } = NEW[kind];
  const call = (/** @type {any} */ values) => ({ method: "POST", path: `/v1/${kind}`, body: values });
  const form = new Form(fields, {
    submit: "Make a campaign",
    label: title,
    changed: () => draw(),
    act: async (values) => {
      await send(call(values), view.signal);
      view.go(["campaigns", kind, values.id]);
    },
  });
  const [shown, draw] = previewOf(form, (values) => [call(values)]);
  return panel(title, form.el, shown);
}

/** @param {import("./main.js").View} view @param {string} name */
async function slates(view, name) {
  const at = path`/v1/slates/${name}`;
  const [note, bounds, best, about] = boxes(4);
  const tiles = h("div", { class: "tiles" });
  /** @type {{x: number, y: number | null, low: number, high: number}[]} */
  const seen = [];
  const named = await titlesAmong((await get(at, view.signal)).arms, view.signal);
  const look = view.live(LOOK_MS, note, async () => {
    const now = await get(at, view.signal);
    const { lower, upper } = now.bounds;
    if (lower !== null && upper !== null && seen[seen.length - 1]?.x !== now.observed) seen.push({ x: now.observed, y: (lower + upper) / 2, low: lower, high: upper });
    redraw(tiles, now, () => [
      tile("State", now.state, now.state === "done" ? "the best slate is found" : "asks for more", now.state === "done" ? "good" : ""),
      tile("Totals told", count(now.observed), `${count(now.progress.asked)} asked for`),
      tile("Still wanted", now.state === "done" ? "0" : count(now.progress.more_pulls ?? undefined), now.state === "done" || now.progress.more_pulls !== null ? "about" : "not known yet"),
      tile("Mean of the best slate", lower === null ? "not known yet" : `${number(lower)} … ${number(upper)}`, `with probability ${percent(1 - now.guarantee.delta)}`),
    ]);
    redraw(bounds, seen, () => chart("lines", { label: "Bounds of the mean total of the best slate", unit: "total of a slate", x: "totals told", series: [{ name: "between the bounds", kind: "policy", points: seen }], none: "No bounds are known yet: they come with the first look at the totals." }));
    const bars = Object.entries(now.estimates).map(([id, value]) => ({ label: named(id), value: Number(value), kind: now.best.includes(id) ? "third" : "muted" })).sort((a, b) => b.value - a.value).slice(0, 30);
    redraw(best, bars, () => chart("bars", { label: "Estimates of the arms", unit: "what an arm adds to a total", bars, none: "Nothing is estimated yet." }));
    redraw(about, now, () => [
      facts([["Best now", now.best.map(named).join(", ") || "not known"], ["Arms", count(now.arms.length)], ["k", count(now.k)], ["Method", now.method], ["Guarantee", `${now.guarantee.kind}, epsilon ${number(now.guarantee.epsilon)}, delta ${number(now.guarantee.delta)}`], ["Outside of the stated noise", count(now.outside)]]),
      now.warnings.map(warning),
    ]);
  });
  view.root.append(
    h("p", {}, "Campaign ", h("strong", {}, name), " finds the slate of highest mean total."),
    h("div", {}, note, tiles),
    h("div", { class: "cols" }, panel("Its bounds, narrowing while this page is open", bounds), panel("Arms", best), panel("What it is", about), asking(view, at, look, {
      what: "slates",
      question: "What did each of these slates earn in total?",
      value: "total",
      asked: async ({ pulls }) => pulls.map((/** @type {any} */ { pull, slate }) => [{ pull }, slate.map(named).join(", ")]),
    })),
    panel("Delete", deletion(view, name, at, "Gone for good with it: all totals that were told, its estimates and bounds, and the slates that still wait for a total.", ["campaigns"])),
  );
}

/**
 * Ask what to try next, and tell what came of it. `asked`: what the answer of "ask" holds, as pairs of what is told
 * back and a label. `value`: the field of a result.
 * @param {import("./main.js").View} view @param {string} at @param {() => void} look
 * @param {{what: string, question: string, value: string, asked: (answer: any) => Promise<[Record<string, string>, string][]>}} words
 */
function asking(view, at, look, { what, question, value, asked }) {
  const box = h("div", {});
  const ask = action(`Ask for five ${what}`, async () => {
    const answer = await send({ method: "POST", path: `${at}/ask`, body: { count: 5 } }, view.signal);
    const open = await asked(answer);
    look();
    if (!open.length) {
      box.replaceChildren(empty(answer.done ? "The campaign has ended." : "It waits for answers that were asked for."));
      return;
    }
    // The service counts the results that are sent, and fields that are left empty are not.
    /** @type {number[]} */
    let sent = [];
    const form = new Form(open.map(([, label], place) => ({ name: String(place), label, kind: "number" })), {
      submit: `Tell the ${value}s`,
      act: async (values) => {
        sent = Object.keys(values).map(Number);
        for (const field of form.fields) field.loc = `results.${sent.indexOf(Number(field.name))}`;
        const results = sent.map((place) => ({ ...open[place][0], [value]: values[place] }));
        await send({ method: "POST", path: `${at}/tell`, body: { results } }, view.signal);
        box.replaceChildren(empty(`${count(results.length)} ${value}s told.`));
        look();
      },
    });
    box.replaceChildren(h("p", { class: "hint" }, question), form.el);
  });
  return panel("Ask and tell", ask, box);
}

/** @param {import("./main.js").View} view @param {string} name */
async function centers(view, name) {
  const at = path`/v1/centers/${name}`;
  const [note, about, radii] = boxes(3);
  const tiles = h("div", { class: "tiles" });
  /** @type {{x: number, y: number}[]} */
  const seen = [];
  await get(at, view.signal);
  const look = view.live(LOOK_MS, note, async () => {
    const now = await get(at, view.signal);
    const named = await titlesAmong(now.centers, view.signal);
    if (now.radius !== null && seen[seen.length - 1]?.x !== now.observed) seen.push({ x: now.observed, y: now.radius });
    redraw(tiles, now, () => [
      tile("State", now.state, now.method, now.state === "done" ? "good" : ""),
      tile("Distances told", count(now.observed), `${count(now.issued)} asked for`),
      tile("Centres", `${count(now.centers.length)} of ${count(now.k)}`, `among ${count(now.points)} points`),
      tile("Radius", decimal(now.radius), "estimated, without the last centre"),
    ]);
    redraw(about, now, () => table("Centres", ["place", "point"], now.centers.map((/** @type {string} */ id, /** @type {number} */ place) => [count(place + 1), named(id)]), "None is found yet."));
    redraw(radii, seen, () => chart("lines", { label: "Radius", unit: "distance", x: "distances told", least: 0, series: [{ name: "radius", kind: "policy", points: seen }], none: "No radius is known yet." }));
  });
  view.root.append(h("p", {}, "Campaign ", h("strong", {}, name), " finds centres from noisy distances."), h("div", {}, note, tiles), h("div", { class: "cols" }, panel("Centres", about), panel("Radius, while this page is open", radii), asking(view, at, look, {
    what: "distances",
    question: "How far apart are these points?",
    value: "distance",
    asked: async ({ queries }) => {
      const named = await titlesAmong(queries.flatMap((/** @type {any} */ each) => each.pair), view.signal);
      return queries.map((/** @type {any} */ { query, pair }) => [{ query }, pair.map(named).join(" and ")]);
    },
  })), panel("Delete", deletion(view, name, at, "Gone for good with it: all distances that were told, the centres that were found, and the pairs that still wait for one.", ["campaigns"])));
}

/** What arms of a campaign are called: as in the first catalogue with titles that has the first of them. @param {string[]} ids @param {AbortSignal} signal */
async function titlesAmong(ids, signal) {
  for (const catalogue of ids.length ? await names("catalogues", signal) : []) {
    const named = await titlesOf(catalogue, ids.slice(0, 1), signal);
    if (named(ids[0]) !== ids[0]) return titlesOf(catalogue, ids, signal);
  }
  return (/** @type {string} */ id) => id;
}
