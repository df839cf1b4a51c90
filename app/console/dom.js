// Elements from data. What comes from the service is only ever text or the value of an attribute.

import { plain, sentence } from "./format.js";

/** @typedef {any} Child a node or a text; nothing where null or false; or a list of such */
/** @typedef {Record<string, any>} Props */

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "selected", "open", "data", "readOnly"]);

/**
 * An element. `on` has listeners by event; `value`, `checked` and the like are properties; all else are
 * attributes, absent where null or false. A link leads into this page or to a path of this service; a picture is
 * anywhere, by https.
 * @param {string} tag @param {Props} [props] @param {...(Child | Child[])} children @returns {any}
 */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for SVG. @type {typeof h} */
export const s = (tag, props = {}, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

/** Empty boxes, to be filled as answers come. @param {number} count @returns {any[]} */
export const boxes = (count) => Array.from({ length: count }, () => h("div", {}));

/** Whether an address may be that of a picture. @param {string} address */
export const isPicture = (address) => /^https:\/\//.test(address);

/** @param {any} element @param {Props} props @param {(Child | Child[])[]} children */
function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value === null || value === undefined || value === false) {
      continue;
    } else if (PROPERTIES.has(name) && !(element instanceof SVGElement)) {
      // after the children: the value of a select is one of them
    } else if (/^on/i.test(name) || (name === "src" && !isPicture(value)) || (name === "href" && !/^(#|docs$|openapi\.json$|metrics$)/.test(value))) {
      throw new TypeError(`${name} is not set from data`);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false).map(asNode));
  for (const [name, value] of Object.entries(props)) {
    if (PROPERTIES.has(name) && !(element instanceof SVGElement) && value !== undefined && value !== null) element[name] = value;
  }
  return element;
}

/** @param {any} child */
function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** @type {WeakMap<Element, string>} */
const drawn = new WeakMap();

/** Fill an element again, if what it shows has changed. @param {Element} element @param {unknown} data what is shown, as JSON @param {() => Child | Child[]} make */
export function redraw(element, data, make) {
  const now = JSON.stringify(data) ?? "";
  if (drawn.get(element) === now) return;
  drawn.set(element, now);
  keeping(element, () => {
    element.replaceChildren();
    filled(element, {}, [make()]);
  });
}

/**
 * Change what an element holds: the focus stays on what has the same name, or else on what stands in the same place; what
 * was unfolded stays so. @param {Element} element @param {() => unknown} change
 */
export function keeping(element, change) {
  const all = (/** @type {string} */ kind) => /** @type {any[]} */ ([...element.querySelectorAll(kind)]);
  const nameOf = (/** @type {Element} */ each) => each.getAttribute("aria-label") ?? each.textContent;
  const place = all(FOCUSABLE).indexOf(document.activeElement);
  const name = place < 0 ? "" : nameOf(all(FOCUSABLE)[place]);
  const open = all("details").map((each) => each.open);
  change();
  all("details").forEach((each, at, { length }) => length === open.length && open[at] && (each.open = true));
  const now = place < 0 ? [] : all(FOCUSABLE);
  (now.find((each) => nameOf(each) === name) ?? now[Math.min(place, now.length - 1)])?.focus({ preventScroll: true });
}

/** A part of a page with a heading. @param {string} title @param {...(Child | Child[])} children @returns {HTMLElement} */
export function panel(title, ...children) {
  return h("section", { class: "panel" }, h("h2", {}, title), ...children);
}

/**
 * A table. A column that begins with "#" is of numbers. Of the kind "cards" each row is a card on a phone; of "cards flow" its cells stand side by side.
 * @param {string} label @param {Child[]} columns @param {Child[][]} rows @param {string} [none] @param {string} [kind]
 */
export function table(label, columns, rows, none = "Nothing yet.", kind = "") {
  if (!rows.length) return empty(none);
  const number = columns.map((column) => typeof column === "string" && column.startsWith("#"));
  const bare = (/** @type {Child} */ column) => (typeof column === "string" ? column.replace(/^#/, "") : column);
  return h(
    "div",
    { class: `scroll ${kind}`, tabindex: 0, role: "region", "aria-label": label },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, columns.map((column, place) => h(column ? "th" : "td", { scope: column ? "col" : null, class: number[place] && "number" }, bare(column))))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, place) => h("td", { class: number[place] && "number", "data-column": kind.startsWith("cards") && (typeof columns[place] === "string" ? bare(columns[place]) : columns[place]?.firstChild?.textContent) }, cell))))),
    ),
  );
}

/** @param {...(Child | Child[])} children */
export function empty(...children) {
  return h("p", { class: "empty" }, ...children);
}

/** @param {[string, Child][]} pairs @returns {HTMLElement} */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** @param {string} label @param {Child} value @param {Child} [below] @param {string} [kind] */
export function tile(label, value, below, kind = "") {
  return h("div", { class: `tile ${kind}` }, h("span", { class: "label" }, label), h("strong", {}, value), h("span", { class: "below" }, below));
}

/** @param {string} text @param {() => unknown} act @param {Props} [props] @returns {HTMLButtonElement} */
export function button(text, act, props = {}) {
  return h("button", { type: "button", ...props, on: { click: act } }, text);
}

/** The address of a page. @param {(string | number)[]} parts @param {Record<string, unknown>} [query] */
export function address(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}${search && `?${search}`}`;
}

/** Whether the navigation has a page: those of plug-ins may be missing. @param {string | number} name */
export const hasPage = (name) => document.querySelector(`nav [href="${address([name])}"]`) !== null;

/** @param {Child} text @param {(string | number)[]} parts @param {Record<string, unknown>} [query] */
export function link(text, parts, query) {
  return h("a", { href: address(parts, query) }, text);
}

/** What a cell says while it is still read. @returns {HTMLElement} */
export const loading = () => h("span", { class: "loading" }, "loading …");

/** What stands where something is still read. @param {number} [lines] @returns {HTMLElement} */
export function skeleton(lines = 3) {
  return h("div", { class: "skeleton", role: "status" }, h("span", { class: "loading" }, "Loading …"), Array.from({ length: lines }, () => h("span", { class: "bone", "aria-hidden": "true" })));
}

/** Something long, folded. @param {string} title @param {...(Child | Child[])} children */
export function folded(title, ...children) {
  return h("details", {}, h("summary", {}, title), ...children);
}

/** A value of a setting or a row as JSON: a long one is folded, and a line may end behind a comma or a colon. @param {unknown} value */
export function code(value) {
  const text = plain(value);
  const whole = h("code", {}, text.split(/(?<=[,:])/).map((part, place) => [place > 0 && h("wbr"), part]));
  return text.length > 160 ? folded(`${text.slice(0, 60)} …`, whole) : whole;
}

/** What the service warns of, as a sentence. @param {string} words */
export function warning(words) {
  return h("p", { class: "warning" }, sentence(words));
}
