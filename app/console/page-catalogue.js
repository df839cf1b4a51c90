// Catalogue: how it is searched, its arms by a filter, one arm, and all of them as a picture.

import { get, list, path, query, send } from "./api.js";
import { chart } from "./charts.js";
import { boxes, code, empty, facts, folded, h, keeping, link, panel, redraw, skeleton, table, tile } from "./dom.js";
import { filterBuilder, wordsOf } from "./filters.js";
import { bytes, count, decimal, duration, isNumber, number, percent, plain, sentence, time } from "./format.js";
import { catalogueTable } from "./page-overview.js";
import { action, deletion, Form, previewOf, problemBox } from "./forms.js";
import { fieldOf, write } from "./json.js";
import { components } from "./linear.js";
import { lastDecisions, names, pictureOf, shownArms, titleIn, titlesOf, valueIn } from "./measure.js";

/** The arm that is looked at, its nearest arms, and what marks them in the picture. @typedef {{id: string, near: Set<string>, mark: () => void}} Selected */

const LOOK_MS = 5000;
const SAMPLE = 1000;
const SAMPLE_NUMBERS = 400_000;
const MOST_DRAWS = 8;
const SHOWN = 25;
const COLOURS = 7;
const MOST_TEXT = 60;
const DRAWN_AT_ONCE = 20_000;
const MOST_SORTED = 100_000;
const MOST_FIELDS = 200;
const MOST_COLUMNS = 8;

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts } = view;
  if (!parts[0]) {
    const catalogues = await names("catalogues", signal);
    root.append(panel("All catalogues", catalogues.length ? catalogueTable(catalogues) : empty("There is none yet. ", link("Make one on the overview", []), ".")));
    return;
  }
  const [name] = parts;
  const catalogue = await get(path`/v1/catalogues/${name}`, signal);
  const [note, wrong, index, one] = boxes(4);
  const tiles = h("div", { class: "tiles" });
  /** @type {Selected} */
  const selected = { id: "", near: new Set(), mark: () => {} };
  tiles.append(skeleton(2));
  const fields = fieldsOf(catalogue, signal);
  root.append(h("p", {}, "Asked directly, without any learning: ", link("queries", ["queries", name]), " over these arms."), h("div", {}, note, wrong, tiles), one, arms(view, catalogue, fields, (id) => open(id)), picture(view, catalogue, fields, selected, (id) => open(id)), panel("Is the index good?", index), growing(view, catalogue, fields));
  view.live(LOOK_MS, note, async () => {
    const now = await get(path`/v1/catalogues/${name}`, signal);
    redraw(wrong, now.findings, () => (now.findings ?? []).map((/** @type {any} */ each) => h("p", { class: "problem" }, sentence(each.text))));
    redraw(tiles, now, () => [
      tile("Arms", count(now.size), `${count(now.dim)} numbers each`),
      tile("Searched", now.index.kind + (now.index.exact && now.index.kind !== "exact" ? ", exact" : ""), now.index.reason),
      tile("Recall", percent(now.index.recall_at_1), `of the best arm${now.index.recall_at_10 === undefined ? "" : `, ${percent(now.index.recall_at_10)} of lists of ten`}, measured; ${percent(now.index.target_recall)} are wanted`),
      tile("A search", duration(now.index.expected_us / 1e6), "expected"),
      now.follows && tile("Follows", link(now.follows, ["catalogues", now.follows]), now.behaviour.without ? `by what keys liked; ${count(now.behaviour.without)} arms by their fields` : "by what keys liked"),
      now.behaviour?.prior && tile("What people share", count(now.behaviour.prior.keys), `keys of the history, in ${count(now.behaviour.prior.directions)} real directions: new bandits begin with it`),
      tile("State", now.index.state, [`version ${count(now.version)}`, now.index.state === "building" && `; ${stillBuilt(now.index)}`], now.index.state === "ready" ? "good" : ""),
    ]);
    redraw(index, now, () => searched(now));
  });

  /** @param {string} id */
  async function open(id) {
    view.remember({ arm: id });
    one.replaceChildren(panel(`Arm ${id}`, skeleton(5)));
    try {
      const shown = await arm(view, catalogue, id, selected, (other) => open(other));
      one.replaceChildren(shown);
      /** @type {HTMLElement} */ (shown.querySelector("h2")).focus();
    } catch (error) {
      one.replaceChildren();
      throw error;
    }
  }
  const given = view.query.get("arm");
  if (given) await open(given);
}

/** How long an index will still be built, by its own progress. @param {any} index */
const stillBuilt = ({ build_left_s }) => (isNumber(build_left_s) ? `some ${duration(Math.ceil(Number(build_left_s)))} more, then it is measured` : "it cannot be told yet for how long");

/** What was built of an index: a graph in memory, or the copy of the arms in an engine; nothing where arms are scanned. @param {any} index @returns {[string, any][]} */
function built(index) {
  if (!index.arms_in_memory) return [["Collection", index.collection || "none yet"], ["Changes that it lacks", count(index.pending)], ["Arms in memory, changed lately", count(index.overlay)], ["Arms when recall was measured", count(index.measured_arms)]];
  if (!index.arms_in_graph) return [];
  return [["Breadth of a search", count(index.ef_search)], ["Last build took", duration(index.build_s || null)], ["Arms in the graph", count(index.arms_in_graph)], ["New, scanned until the next build", count(index.fresh)], ["Deleted, still in the graph", count(index.dead)]];
}

/** @param {any} now */
function searched(now) {
  const filters = now.filters.map((/** @type {any} */ each) => [code(each.filter), count(each.eligible), each.way, percent(each.recall_at_1), duration(each.expected_us / 1e6), count(each.uses), each.reason]);
  const isGood = now.index.exact || now.index.recall_at_1 === null ? null : now.index.recall_at_1 >= now.index.target_recall;
  const word = now.index.exact ? h("p", {}, h("span", { class: "tag good" }, "exact"), " Every search finds the best arms.") : isGood === null ? h("p", {}, h("span", { class: "tag" }, "not measured yet")) : h("p", {}, h("span", { class: `tag ${isGood ? "good" : "bad"}` }, isGood ? "good" : "below its target"), ` It finds the best arm in ${percent(now.index.recall_at_1)} of measured searches; ${percent(now.index.target_recall)} are wanted.`);
  return [
    now.index.failure && h("p", { class: "problem" }, `The last work on the index failed: ${now.index.failure}`),
    word,
    facts([["Asked for", now.index.requested], ["Serves", now.index.kind], ["Because", now.index.reason], ["Memory", bytes(now.index.memory_bytes)], ["Mean ratio to the best", number(now.index.ratio_mean, 4)], ...built(now.index)]),
    ...made(now),
    h("h3", {}, "Filters in use"),
    table("Filters in use", ["filter", "#arms", "searched by", "#recall", "#a search", "#uses", "because"], filters, "No filter was asked for lately.", "cards"),
  ];
}

/** What the features are made from. @param {any} now */
function made(now) {
  const warnings = (now.warnings ?? []).map((/** @type {string} */ each) => h("p", { class: "problem" }, each));
  if (!now.columns) return warnings;
  const { reduction } = now;
  const unlisted = Object.entries(now.unlisted ?? {}).map(([field, each]) => [field, count(each.arms), each.values.join(", ")]);
  const waits = reduction?.state === "not_fitted";
  return [
    ...warnings,
    h("h3", {}, "Features"),
    facts(/** @type {[string, any][]} */ ([
      ["Numbers of each arm", count(now.columns.length)],
      ...(reduction ? [["Embedding", `${count(now.features.embedding.dim)} numbers reduced to ${count(reduction.to)}`], ["Basis", waits ? "none yet: arms are not chosen" : reduction.state], ["Variance kept", percent(reduction.share_of_variance)], ["Of the ten nearest arms, kept", percent(reduction.overlap_at_10)]] : []),
    ])),
    folded("What each number is", h("p", { class: "names" }, now.columns.join(", "))),
    unlisted.length ? table("Values that no field lists", ["field", "#arms", "the most frequent"], unlisted, "", "cards") : null,
  ];
}

/** The fields of the arms, by name; none where they are not in memory. @param {any} catalogue @param {AbortSignal} signal @returns {Promise<any[]>} */
async function fieldsOf(catalogue, signal) {
  if (!catalogue.index.arms_in_memory) return [];
  return (await list(path`/v1/catalogues/${catalogue.id}/fields`, MOST_FIELDS, signal)).items;
}

/** The arms, sorted by a column, or those that a filter matches. @param {import("./main.js").View} view @param {any} catalogue @param {Promise<any[]>} fields @param {(id: string) => unknown} open */
function arms(view, catalogue, fields, open) {
  const box = h("div", {}, skeleton(8));
  const at = path`/v1/catalogues/${catalogue.id}`;
  const state = { cursor: /** @type {string | null} */ (null), sort: view.query.get("sort"), order: view.query.get("order") ?? "asc", items: /** @type {any[]} */ ([]), counted: /** @type {any[]} */ ([]), isFiltered: false, isRead: false };
  const more = action("Show more", () => page());
  fields.then((all) => ((state.counted = all), state.isRead && draw()), () => null); // of many arms they take a while, and the arms are shown before
  const canSort = catalogue.size <= MOST_SORTED && catalogue.index.arms_in_memory;

  const draw = () => {
    const known = state.counted.filter((each) => each.field !== "tags" && !("none" in each.types && Object.keys(each.types).length === 1)).sort((a, b) => b.arms - a.arms).map((each) => each.field);
    const columns = (known.length ? known : [...new Set(state.items.flatMap((each) => Object.keys(each.metadata)))]).filter((each) => each !== catalogue.display?.title).slice(0, MOST_COLUMNS);
    keeping(box, () => box.replaceChildren(armTable(catalogue, state, columns, open, canSort && !state.isFiltered ? sortBy : null)));
    if (!canSort || state.isFiltered) box.append(h("p", { class: "hint" }, state.isFiltered ? "Arms of a filter are not sorted." : `Columns are sorted in catalogues of at most ${count(MOST_SORTED)} arms.`));
  };
  const sortBy = async (/** @type {string} */ field) => {
    [state.order, state.sort] = [state.sort === field && state.order === "asc" ? "desc" : "asc", field];
    view.remember({ sort: state.sort, order: state.order });
    [state.cursor, state.items] = [null, []];
    await page();
  };
  const page = async () => {
    const found = await get(`${at}/arms` + query({ limit: SHOWN, cursor: state.cursor, ...(state.sort && canSort ? { sort: state.sort, order: state.order } : {}) }), view.signal);
    state.cursor = found.next;
    [state.isFiltered, state.isRead] = [false, true];
    more.hidden = !found.next;
    state.items.push(...found.items);
    draw();
  };
  /** @param {any} filter */
  const filtered = async (filter) => {
    // A search for the arms of largest product with zeros: any arms that the filter matches.
    const body = { query: new Array(catalogue.dim).fill(0), k: SHOWN, method: catalogue.index.arms_in_memory ? "exact" : "hnsw", filter };
    const found = await send({ method: "POST", path: `${at}/mips`, body }, view.signal);
    state.items = await Promise.all(found.arms.map((/** @type {any} */ each) => get(`${at}/arms/${encodeURIComponent(each.id)}`, view.signal)));
    state.isFiltered = state.isRead = more.hidden = true;
    draw();
    box.prepend(h("p", { class: "soft" }, state.items.length < SHOWN ? `${count(state.items.length)} arms.` : `${count(SHOWN)} of the ${found.eligible ? `${count(found.eligible)} ` : ""}arms that it matches.`));
  };
  const form = new Form([{ name: "filter", label: "Filter", kind: "json", value: view.query.get("filter") ?? "", placeholder: '{"price": {"$lte": 20}, "kind": {"$in": ["mug", "lamp"]}}', hint: "The filter language: $eq $ne $gt $gte $lt $lte $in $nin $exists $and $or $not." }], {
    submit: "Show arms",
    act: async ({ filter }) => {
      view.remember({ filter: form.text("filter") });
      [state.cursor, state.items] = [null, []];
      try {
        await (filter ? filtered(filter) : page());
      } catch (error) {
        box.replaceChildren();
        throw error;
      }
    },
  });
  filterBuilder(form, "filter", catalogue.id, view.signal);
  const find = new Form([{ name: "id", label: "Or one arm by its id" }], { submit: "Show this arm", act: ({ id }) => open(id ?? "") });
  if (catalogue.size) form.submit(new Event("submit", { cancelable: true }));
  else box.replaceChildren(empty("This catalogue has no arms yet."));
  more.hidden = true;
  return panel("Arms", form.el, box, more, find.el);
}

/** @param {any} catalogue @param {any} state @param {string[]} columns @param {(id: string) => unknown} open @param {((field: string) => unknown) | null} sortBy */
function armTable(catalogue, { items, sort, order }, columns, open, sortBy) {
  const title = catalogue.display?.title;
  const head = (/** @type {string} */ field) => {
    if (!sortBy) return field;
    const arrow = sort === field ? (order === "asc" ? " ▲" : " ▼") : "";
    return h("button", { type: "button", class: "sort", "aria-label": `Sort by ${field}${sort === field ? `, ${order === "asc" ? "ascending" : "descending"} now` : ""}`, on: { click: () => sortBy(field) } }, field, arrow);
  };
  const bare = !columns.length;
  const rows = items.map((/** @type {any} */ each) => [
    h("span", {}, pictureOf(catalogue, each, "thumb"), h("button", { type: "button", class: "quiet", on: { click: () => open(each.id) } }, titleIn(each, title))),
    ...(title ? [each.id] : []),
    ...columns.map((field) => shortened(listed(valueIn(each.metadata, field)))),
    ...(bare ? [each.features.slice(0, 6).map((/** @type {number} */ value) => number(value)).join(", ") + (each.features.length > 6 ? ", …" : "")] : []),
    each.tags.join(", "),
  ]);
  return table("Arms", [title ? head(title) : "arm", ...(title ? ["id"] : []), ...columns.map(head), ...(bare ? ["its first numbers"] : []), rows.length ? head("tags") : "tags"], rows, "No arm fits.", "cards flow whole");
}

/** A value of metadata as text: the members of a list between commas. @param {any} value */
const listed = (value) => (Array.isArray(value) ? value.map(plain).join(", ") : plain(value));

/** As much of a text as a column has room for; the page of the arm has all of it. @param {string} text */
const shortened = (text) => (text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT - 1)}…` : text);

/** One arm with everything known of it. @param {import("./main.js").View} view @param {any} catalogue @param {string} id @param {Selected} selected @param {(id: string) => unknown} open @returns {Promise<HTMLElement>} */
async function arm(view, catalogue, id, selected, open) {
  const at = path`/v1/catalogues/${catalogue.id}`;
  const found = await get(`${at}/arms/${encodeURIComponent(id)}`, view.signal);
  [selected.id, selected.near] = [id, new Set()];
  selected.mark();
  const nearest = h("div", {}, skeleton());
  const shown = h("div", {}, skeleton());
  const title = titleIn(found, catalogue.display?.title);
  const section = panel(
    `Arm ${title}`,
    pictureOf(catalogue, found, "picture-of-arm"),
    facts([...(title === id ? [] : [/** @type {[string, any]} */ (["id", id])]), ...Object.entries(found.metadata).map(([field, value]) => /** @type {[string, any]} */ ([field, listed(value)])), ["tags", found.tags.join(", ") || "none"]]),
    h("h3", {}, "How often it was shown, and what it earned"),
    shown,
    h("h3", {}, "Nearest arms"),
    nearest,
    h("details", {}, h("summary", {}, "Features"), h("pre", { tabindex: 0, role: "region", "aria-label": "Features" }, write(found.features.length === catalogue.columns?.length ? Object.fromEntries(found.features.map((/** @type {number} */ value, /** @type {number} */ place) => [catalogue.columns[place], value])) : found.features))),
    deletion(view, id, `${at}/arms/${encodeURIComponent(id)}`, "Gone from all choices with it: its features, tags and metadata. Rewards for it still count, and the rows of the log that show it stay.", ["catalogues", catalogue.id]),
  );
  const told = (/** @type {HTMLElement} */ box, /** @type {Promise<unknown>} */ work) => work.catch((error) => (view.signal.aborted ? null : box.replaceChildren(problemBox(error))));
  told(shown, earnedBy(view, catalogue, id).then((rows) => shown.replaceChildren(table("Shown", ["bandit", "#times shown", "#of decisions", "#mean reward", "#± 2 standard errors", "since"], rows, "No bandit over this catalogue keeps a log.", "cards"))));
  told(nearest, neighbours(view, catalogue, found, selected, open).then((rows) => nearest.replaceChildren(table("Nearest arms", ["arm", "#distance"], rows, "There is no other arm."))));
  section.querySelector("h2")?.setAttribute("tabindex", "-1");
  return section;
}

/** How often bandits showed an arm in their last decisions. @param {import("./main.js").View} view @param {any} catalogue @param {string} id */
async function earnedBy(view, catalogue, id) {
  const bandits = (await names("bandits", view.signal)).filter((each) => each.catalogue === catalogue.id && each.log);
  return Promise.all(bandits.map(async (bandit) => {
    const rows = await lastDecisions(bandit.id, view.signal);
    const own = shownArms(rows).find((each) => each.id === id);
    return [link(bandit.id, ["bandits", bandit.id]), count(own?.shown ?? 0), count(rows.length), decimal(own?.mean), own && isNumber(own.low) ? `${decimal(own.low)} … ${decimal(own.high)}` : "–", rows.length ? time(rows[0].time) : "–"];
  }));
}

/** @param {import("./main.js").View} view @param {any} catalogue @param {any} arm @param {Selected} selected @param {(id: string) => unknown} open */
async function neighbours(view, catalogue, arm, selected, open) {
  if (catalogue.reduction?.state === "not_fitted") return [];
  const near = await send({ method: "POST", path: path`/v1/catalogues/${catalogue.id}/mips`, body: { query: arm.features, k: 9, method: "exact", objective: "nearest" } }, view.signal);
  const others = near.arms.filter((/** @type {any} */ each) => each.id !== arm.id);
  selected.near = new Set(near.arms.map((/** @type {any} */ each) => each.id));
  selected.mark();
  const named = await titlesOf(catalogue, others.map((/** @type {any} */ each) => each.id), view.signal);
  return others.map((/** @type {any} */ each) => [h("button", { type: "button", class: "quiet", on: { click: () => open(each.id) } }, named(each.id)), number(Math.sqrt(Math.max(0, each.value)))]);
}

/** All arms, or a random sample of many: draws by several seeds, for one has fewer where arms are long. @param {any} catalogue @param {number} size @param {AbortSignal} signal @returns {Promise<any[]>} */
async function sample(catalogue, size, signal) {
  const at = path`/v1/catalogues/${catalogue.id}/arms`;
  if (catalogue.size <= size) return (await list(at, size, signal)).items;
  const found = new Map();
  for (let seed = 1; seed <= MOST_DRAWS && found.size < size; seed++) {
    const drawn = await get(at + query({ limit: Math.min(1000, size), sample_seed: seed }), signal);
    for (const each of drawn.items) found.set(each.id, each);
  }
  return [...found.values()].slice(0, size);
}

/** All arms in the plane. @param {import("./main.js").View} view @param {any} catalogue @param {Promise<any[]>} known @param {Selected} selected @param {(id: string) => unknown} open */
function picture(view, catalogue, known, selected, open) {
  const box = h("div", {});
  const choice = h("select", { "aria-label": "Coloured by", on: { change: () => draw() } });
  const size = Math.max(50, Math.min(SAMPLE, Math.floor(SAMPLE_NUMBERS / catalogue.dim)));
  /** @type {{items: any[], points: number[][], share: number, earned: Map<string, number>, isDrawn: boolean} | null} */
  let data = null;
  const load = action("Draw the picture", async () => {
    const items = await sample(catalogue, size, view.signal);
    const own = (await names("bandits", view.signal)).find((each) => each.catalogue === catalogue.id && each.log);
    const rows = own ? shownArms(await lastDecisions(own.id, view.signal)) : [];
    data = { items, ...components(items.map((each) => each.features)), earned: new Map(rows.flatMap((each) => (each.mean === null ? [] : [[each.id, each.mean]]))), isDrawn: false };
    const fields = [...new Set(items.flatMap((each) => Object.keys(each.metadata)))].slice(0, 30);
    choice.replaceChildren(...["mean reward", ...fields].map((field) => h("option", { value: field }, field)));
    // A field of few values that most arms have tells most.
    const telling = (await known).filter((each) => fields.includes(each.field) && each.distinct > 1 && each.arms > catalogue.size / 2).sort((a, b) => a.distinct - b.distinct)[0]?.field;
    if (fields[0]) choice.value = view.query.get("colour") ?? telling ?? fields[0];
    load.remove();
    box.prepend(h("div", { class: "field" }, h("label", {}, "Coloured by ", choice)));
    draw();
  });
  const drawing = h("div", {});
  const draw = () => {
    if (!data) return;
    const { items, points, share, earned } = data;
    const by = choice.value;
    if (data.isDrawn) view.remember({ colour: by });
    data.isDrawn = true;
    const { kinds, legend } = by === "mean reward" ? byReward(items, earned) : byField(items, by);
    const dots = items.map((each, place) => ({ id: each.id, x: points[place][0], y: points[place][1], kind: kinds[place], note: [titleIn(each, catalogue.display?.title), by, by === "mean reward" ? number(earned.get(each.id)) : plain(fieldOf(each.metadata, by))].join(" · ") }));
    const scatter = chart("scatter", { label: "Arms by their first two principal components", dots, legend }, { on: { choose: (/** @type {CustomEvent} */ event) => open(event.detail) } });
    const sample = items.length < catalogue.size ? `A random sample: ${count(items.length)} of ${count(catalogue.size)} arms. ` : "";
    const marked = h("span", {});
    selected.mark = () => {
      scatter.mark(selected.id, selected.near);
      marked.textContent = items.some((each) => each.id === selected.id || selected.near.has(each.id)) ? " The arm that is looked at and its nearest ones are larger." : "";
    };
    selected.mark();
    drawing.replaceChildren(h("p", { class: "hint" }, `${sample}The two components hold ${percent(share)} of the variance.`, marked), scatter);
  };
  if (catalogue.size > 1) box.append(load, drawing);
  else box.append(empty("There is nothing to draw yet."));
  if (catalogue.size > 1 && (view.query.get("colour") || catalogue.size <= DRAWN_AT_ONCE)) /** @type {any} */ (load.querySelector("button")).click();
  return panel("The arms as a picture", box);
}

/** @param {any[]} items @param {Map<string, number>} earned */
function byReward(items, earned) {
  const known = [...earned.values()].sort((a, b) => a - b);
  const middle = known[Math.floor(known.length / 2)] ?? 0;
  const kinds = items.map((each) => (earned.has(each.id) ? (Number(earned.get(each.id)) > middle ? "c2" : "c1") : "c7"));
  return { kinds, legend: [{ name: `above ${number(middle)}`, kind: "c2" }, { name: `at most ${number(middle)}`, kind: "c1" }, { name: "not known", kind: "c7" }] };
}

/** @param {any[]} items @param {string} field */
function byField(items, field) {
  const values = items.map((each) => fieldOf(each.metadata, field));
  if (values.every((value) => value === undefined || isNumber(value))) {
    const known = values.filter(isNumber).sort((a, b) => a - b);
    const bounds = [0.25, 0.5, 0.75].map((share) => known[Math.floor(share * (known.length - 1))]);
    const kinds = values.map((value) => (isNumber(value) ? `c${bounds.filter((bound) => value > bound).length}` : "c7"));
    return { kinds, legend: ["lowest quarter", "second", "third", "highest quarter"].map((name, place) => ({ name: bounds[place] === undefined ? name : `${name}, to ${number(bounds[place])}`, kind: `c${place}` })) };
  }
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const value of values.map(plain)) counts.set(value, (counts.get(value) ?? 0) + 1);
  const common = [...counts].sort((a, b) => b[1] - a[1]).slice(0, COLOURS).map(([value]) => value);
  const kinds = values.map((value) => (common.includes(plain(value)) ? `c${common.indexOf(plain(value))}` : "c7"));
  const legend = common.map((name, place) => ({ name: name.slice(0, 40), kind: `c${place}` }));
  return { kinds, legend: counts.size > COLOURS ? [...legend, { name: "others", kind: "c7" }] : legend };
}

/** Which field names an arm. @param {import("./main.js").View} view @param {any} catalogue @param {Promise<any[]>} fields */
function titling(view, catalogue, fields) {
  const form = new Form([
    { name: "title", label: "The field that names an arm", value: catalogue.display?.title ?? "", list: "title-fields", hint: "Its values stand in place of ids on all pages; empty: the ids." },
    { name: "picture", label: "The field with the address of a picture", value: catalogue.display?.picture ?? "", list: "title-fields", hint: "By https; empty: no pictures." },
  ], {
    submit: "Use these titles",
    act: async ({ title, picture: source }) => {
      await send({ method: "PATCH", path: path`/v1/catalogues/${catalogue.id}`, body: { display: { title: title || null, picture: source || null } } }, view.signal);
      view.go(["catalogues", catalogue.id]);
      dispatchEvent(new HashChangeEvent("hashchange"));
    },
  });
  const known = h("datalist", { id: "title-fields" });
  fields.then((all) => known.append(...all.filter((each) => "string" in each.types).map((each) => h("option", { value: each.field }, wordsOf(each)))), () => null);
  return panel("Titles", form.el, known);
}

/** Add arms; delete the catalogue. @param {import("./main.js").View} view @param {any} catalogue @param {Promise<any[]>} fields */
function growing(view, catalogue, fields) {
  const at = path`/v1/catalogues/${catalogue.id}`;
  const example = write([{ id: "new-arm", features: new Array(Math.min(catalogue.dim, 64)).fill(0.1), metadata: {} }]);
  const call = (/** @type {any} */ values) => ({ method: "PUT", path: `${at}/arms`, body: { arms: values.arms ?? [] } });
  const said = h("p", { role: "status" });
  const form = new Form([{ name: "arms", label: "Arms to add or change", kind: "json", value: example }], {
    submit: "Write the arms",
    changed: () => draw(),
    act: async (values) => {
      const done = await send(call(values), view.signal);
      said.textContent = `${count(done.added)} added, ${count(done.updated)} changed.`;
    },
  });
  const [shown, draw] = previewOf(form, (values) => [call(values)]);
  const gone = deletion(view, catalogue.id, at, `Gone for good with it: its ${count(catalogue.size)} arms with their metadata, and its index. Not possible while a bandit uses it.`, ["catalogues"]);
  return h("div", { class: "cols" }, panel("Add arms", form.el, said, shown), titling(view, catalogue, fields), panel("Delete", gone));
}
