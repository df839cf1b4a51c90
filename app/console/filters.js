// A filter put together from fields, types and values, and how many arms it matches.

import { get, list, path, Problem, send } from "./api.js";
import { button, h, keeping, redraw, skeleton } from "./dom.js";
import { count, plain } from "./format.js";
import { fieldOf, read, write } from "./json.js";

const MOST_FIELDS = 500;
const WAIT_MS = 250;
/** @type {Record<string, string>} */
const WORDS = { string: "text", number: "a number", boolean: "true or false", none: "without a value" };
/** @type {[string, string][]} */
const OPERATORS = [["$eq", "is"], ["$ne", "is not"], ["$lte", "at most"], ["$gte", "at least"], ["$lt", "below"], ["$gt", "above"], ["$in", "is one of"], ["$nin", "is none of"], ["$exists", "is there"]];
let builders = 0;

/** What is known of a field, in words. @param {any} field */
export const wordsOf = ({ types }) => Object.entries(types).map(([type, arms]) => `${WORDS[type] ?? type} in ${count(arms)} ${arms === 1 ? "arm" : "arms"}`).join(", ");

/** Whether a value is of a type that a field has, in the words of the service; "" where it is. @param {string} name @param {any} field @param {any} value */
function mistake(name, field, value) {
  if (!name) return "";
  if (!field) return `no arm has \`${name}\``;
  const asked = [...new Set([value].flat().map((each) => (typeof each === "object" ? "number" : typeof each)))];
  const has = Object.keys(field.types).filter((type) => type !== "none");
  if (!asked.length || !has.length || asked.some((type) => type in field.types)) return "";
  const words = has.map((type) => `${WORDS[type]} in ${count(field.types[type])} ${field.types[type] === 1 ? "arm" : "arms"}`).join(" and ");
  return `\`${name}\` is ${words}, and the filter compares it with ${asked.map((type) => WORDS[type]).join(" and ")}`;
}

/** The conditions of a plain filter; null where it is none, as one with $or. @param {any} filter @returns {{name: string, operator: string, value: any}[] | null} */
function conditionsOf(filter) {
  if (filter === undefined || filter === null) return [];
  if (typeof filter !== "object" || Array.isArray(filter) || Object.keys(filter).some((name) => name.startsWith("$"))) return null;
  const found = [];
  for (const [name, test] of Object.entries(filter)) {
    const pairs = test && typeof test === "object" && !Array.isArray(test) && !("source" in test) ? Object.entries(test) : [["$eq", test]];
    if (!pairs.every(([operator]) => OPERATORS.some(([known]) => known === operator))) return null;
    found.push(...pairs.map(([operator, value]) => ({ name, operator, value })));
  }
  return found;
}

/**
 * A builder for the JSON field `name` of a form: conditions as rows, and how many arms match, in the words of the service
 * where none is. `isOneValue`: only one condition may be there, that a field is a value.
 * @param {import("./forms.js").Form} form @param {string} name @param {string} catalogue @param {AbortSignal} signal
 */
export function filterBuilder(form, name, catalogue, signal, isOneValue = false) {
  const input = form.inputs.get(name);
  const rows = h("div", { class: "conditions" });
  const let_in = h("p", { class: "hint", role: "status" });
  const id = `builder-${++builders}`;
  /** @type {Map<string, any>} */
  const fields = new Map();
  /** @type {{name: string, operator: string, value: any}[]} */
  let conditions = [];
  let timer = 0;
  let isReady = false;

  const typed = () => {
    try {
      return { filter: input.value.trim() ? read(input.value) : undefined };
    } catch {
      return null;
    }
  };
  const store = () => {
    /** @type {Record<string, any>} */
    const filter = {};
    for (const { name: field, operator, value } of conditions) if (field && value !== undefined) filter[field] = { ...(filter[field] ?? {}), [operator]: value };
    const short = Object.fromEntries(Object.entries(filter).map(([field, test]) => [field, Object.keys(test).join() === "$eq" ? test.$eq : test]));
    input.value = Object.keys(short).length ? write(short) : "";
    input.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const look = async () => {
    const now = typed();
    if (!now) return void (let_in.textContent = "The filter is no JSON yet.");
    const dim = await dimOf();
    try {
      const body = { query: new Array(dim.dim).fill(0), k: 1, method: dim.index.arms_in_memory ? "exact" : "hnsw", ...(now.filter === undefined ? {} : { filter: now.filter }) };
      const found = await send({ method: "POST", path: path`/v1/catalogues/${catalogue}/mips`, body }, signal);
      let_in.textContent = now.filter === undefined ? `No filter: all ${count(dim.size)} arms.` : found.eligible === undefined || found.eligible === null ? "Some arms match." : `${count(found.eligible)} of ${count(dim.size)} arms match.`;
    } catch (error) {
      if (signal.aborted) return undefined;
      let_in.textContent = error instanceof Problem ? `${error.code === "no_arms" ? "No arm matches: " : ""}${error.message}` : "Waiting for the service.";
    }
    return undefined;
  };
  /** @type {Promise<any> | undefined} */
  let known;
  const dimOf = () => (known ??= get(path`/v1/catalogues/${catalogue}`, signal));
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(look, WAIT_MS);
  };
  const draw = () => {
    const own = typed();
    const parsed = own && conditionsOf(own.filter);
    if (parsed === null) return void rows.replaceChildren(h("p", { class: "hint" }, "This filter is more than a list of conditions: change it as JSON above."));
    conditions = parsed ?? [];
    if (isOneValue && (conditions.length > 1 || conditions.some(({ operator }) => operator !== "$eq"))) return void rows.replaceChildren(h("p", { class: "hint" }, "This filter is more than one value of one field: change it as JSON above."));
    const add = button("Add a condition", () => {
      conditions.push({ name: "", operator: "$eq", value: undefined });
      add.hidden = isOneValue;
      rows.insertBefore(row(conditions[conditions.length - 1]), add).querySelector("input").focus();
    }, { class: "quiet" });
    add.hidden = isOneValue && conditions.length > 0;
    rows.replaceChildren(...conditions.map(row), add);
    return undefined;
  };
  /** @param {{name: string, operator: string, value: any}} condition */
  const row = (condition) => {
    const wrong = h("span", { class: "error", role: "status" });
    const about = h("span", { class: "hint" });
    const field = h("input", { value: condition.name, list: `${id}-fields`, "aria-label": "Field", placeholder: "field", autocomplete: "off" });
    const operator = h("select", { value: condition.operator, "aria-label": "Comparison" }, OPERATORS.slice(0, isOneValue ? 1 : undefined).map(([value, text]) => h("option", { value }, text)));
    const value = h("input", { value: condition.value === undefined ? "" : Array.isArray(condition.value) ? condition.value.map(plain).join(", ") : plain(condition.value), "aria-label": "Value", placeholder: "value", list: `${id}-values`, autocomplete: "off" });
    const suggestions = h("datalist", {});
    suggestions.id = value.getAttribute("list") + conditions.indexOf(condition);
    value.setAttribute("list", suggestions.id);
    const tell = () => {
      const found = fields.get(condition.name);
      about.textContent = found ? wordsOf(found) : "";
      wrong.textContent = isReady && condition.value !== undefined && condition.operator !== "$exists" ? mistake(condition.name, found, condition.value) : isReady && condition.name && !found ? mistake(condition.name, found, []) : "";
      redraw(suggestions, found?.values ?? [], () => (found?.values ?? []).map((/** @type {any} */ each) => h("option", { value: plain(each) })));
    };
    const take = () => {
      condition.name = field.value.trim();
      condition.operator = operator.value;
      value.hidden = condition.operator === "$exists";
      const found = fields.get(condition.name);
      const parse = (/** @type {string} */ text) => valueOf(text.trim(), found);
      const text = value.value.trim();
      condition.value = condition.operator === "$exists" ? true : !text ? undefined : ["$in", "$nin"].includes(condition.operator) ? text.split(",").map(parse) : parse(text);
      tell();
      store();
    };
    for (const each of [field, operator, value]) each.addEventListener("change", take);
    value.hidden = condition.operator === "$exists";
    tell();
    const gone = button("Remove", () => {
      conditions.splice(conditions.indexOf(condition), 1);
      store();
      keeping(rows, draw);
    }, { class: "quiet" });
    return h("div", { class: "condition", role: "group", "aria-label": "Condition" }, field, operator, value, gone, about, wrong, suggestions);
  };
  const names = h("datalist", { id: `${id}-fields` });
  const ready = async () => {
    if (isReady) return;
    rows.replaceChildren(skeleton(1));
    try {
      for (const field of (await list(path`/v1/catalogues/${catalogue}/fields`, MOST_FIELDS, signal)).items) fields.set(field.field, field);
    } catch (error) {
      if (!(error instanceof Problem)) throw error; // of arms in an engine no values are counted
    }
    isReady = true;
    names.append(...[...fields.values()].map((field) => h("option", { value: field.field }, wordsOf(field))));
    draw();
    look();
  };
  const box = h("details", { class: "builder", on: { toggle: () => box.open && ready().catch(() => null) } }, h("summary", {}, "Build the filter"), rows, let_in, names);
  input.addEventListener("input", () => isReady && soon());
  input.addEventListener("change", () => isReady && draw());
  input.closest(".field").append(box);
  return box;
}

/** A value as it was typed, of a type that the field has. @param {string} text @param {any} field @returns {any} */
function valueOf(text, field) {
  const types = field?.types ?? {};
  if (text.startsWith('"')) {
    try {
      return read(text);
    } catch {
      return text;
    }
  }
  if ((text === "true" || text === "false") && (fieldOf(types, "boolean") || !types.string)) return text === "true";
  if (/^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text) && !(types.string && !types.number)) return read(text);
  return text;
}
