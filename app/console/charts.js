// Charts as custom elements. Each has its units, its table and its empty state, and is drawn again when its data
// or its width has changed. Colours come from the style sheet, by class.

import { empty, h, s, table } from "./dom.js";
import { count, decimal, isNumber, number, tick, time } from "./format.js";

/** `n`: of how many a point is, if known: the fewer, the smaller and paler it is. @typedef {{x: number, y: number | null, low?: number | null, high?: number | null, n?: number}} Point */
/** @typedef {{name: string, kind: string, points: Point[]}} Series */
/** @typedef {{label: string, value: number, low?: number, high?: number, mark?: number, note?: string, href?: string, kind?: string}} Bar */
/** @typedef {{id: string, x: number, y: number, kind: string, note: string}} Dot */

const TOP = 12;
const BOTTOM = 24;
const LEFT = 52;
const RIGHT = 10;
let charts = 0;

/** Round numbers between two others. @param {number} low @param {number} high @param {number} most */
export function ticks(low, high, most) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw) ?? raw;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(Math.abs(value) < step / 1e6 ? 0 : value);
  return found;
}

class Chart extends HTMLElement {
  constructor() {
    super();
    /** @type {any} */
    this.given = null;
    this.text = "";
    this.picture = h("div", { class: "picture" });
    this.rows = h("div", {});
    this.details = h("details", { on: { toggle: () => this.fillTable() } }, h("summary", {}, "Table"), this.rows);
    this.observer = new ResizeObserver(() => this.draw());
    this.wide = 0;
  }

  connectedCallback() {
    this.replaceChildren(this.picture, this.details);
    this.observer.observe(this);
    this.draw();
  }

  disconnectedCallback() {
    this.observer.disconnect();
  }

  get data() {
    return this.given;
  }

  set data(data) {
    const text = JSON.stringify(data);
    if (text === this.text) return;
    this.given = data;
    this.text = text;
    this.wide = 0;
    this.draw();
  }

  draw() {
    const wide = Math.floor(this.clientWidth);
    if (!this.given || !this.isConnected || wide < 40 || wide === this.wide) return;
    this.wide = wide;
    const none = this.isEmpty();
    this.details.hidden = none || this.given.tabled;
    this.picture.replaceChildren(none ? empty(this.given.none ?? "Nothing to show yet.") : this.drawn(wide));
    this.fillTable();
  }

  fillTable() {
    if (this.details.open && this.given) this.rows.replaceChildren(this.asTable());
  }

  isEmpty() {
    return false;
  }

  /** @param {number} wide @returns {Node} */
  drawn(wide) {
    return document.createTextNode(String(wide));
  }

  /** @returns {Node} */
  asTable() {
    return h("p");
  }
}

/** Lines with bands. Data: {label, unit, x: "time" | its unit, series: Series[], none, least, most}. */
class Lines extends Chart {
  isEmpty() {
    return !this.given.series.some((/** @type {Series} */ series) => series.points.some((point) => isNumber(point.y)));
  }

  /** @param {number} wide */
  drawn(wide) {
    const { series, label, unit, x: xUnit } = this.given;
    const high = Math.max(160, Math.min(260, wide * 0.42));
    /** @type {Point[]} */
    const points = series.flatMap((/** @type {Series} */ each) => each.points);
    const xs = points.map((point) => point.x);
    const known = points.filter((point) => isNumber(point.y));
    // A point of few decisions may have a band that would flatten all others.
    const reach = middle(known.filter((point) => isNumber(point.high)).map((point) => Number(point.high) - Number(point.y))) * 4;
    const ys = known.flatMap((point) => [point.y, ...(reach && Number(point.high) - Number(point.y) > reach ? [Number(point.y) - reach, Number(point.y) + reach] : [point.low, point.high])]).filter(isNumber);
    const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
    const [y0, y1] = stretched(Math.min(this.given.least ?? Infinity, ...ys), Math.max(this.given.most ?? -Infinity, ...ys));
    const toX = (/** @type {number} */ value) => LEFT + ((value - x0) / (x1 - x0 || 1)) * (wide - LEFT - RIGHT);
    const toY = (/** @type {number} */ value) => high - BOTTOM - ((Math.min(y1, Math.max(y0, value)) - y0) / (y1 - y0)) * (high - TOP - BOTTOM);
    const isTime = xUnit === "time";
    const named = (/** @type {number} */ value) => (isTime ? tick(value, x1 - x0) : number(value));
    const places = isTime ? spread(x0, x1, Math.floor(wide / 110)) : ticks(x0, x1, Math.floor(wide / 90));
    const svg = s("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": `${label}, in ${unit}. The same as a table below.` });
    for (const value of ticks(y0, y1, 4)) {
      svg.append(s("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: toY(value), y2: toY(value) }));
      svg.append(s("text", { class: "tick end", x: LEFT - 6, y: toY(value) + 4 }, number(value)));
    }
    const labels = places.map(named);
    for (const [place, value] of places.entries()) if (labels[place] !== labels[place - 1]) svg.append(s("text", { class: "tick middle", x: Math.min(wide - 30, Math.max(LEFT, toX(value))), y: high - 6 }, labels[place]));
    const most = Math.max(1, ...points.map((point) => point.n ?? 0));
    for (const { kind, points: own } of series) {
      for (const part of unbroken(own)) {
        const banded = part.filter((point) => isNumber(point.low) && isNumber(point.high));
        if (banded.length > 1) {
          const edge = [...banded.map((p) => `${toX(p.x)},${toY(Number(p.high))}`), ...banded.reverse().map((p) => `${toX(p.x)},${toY(Number(p.low))}`)];
          svg.append(s("polygon", { class: `band ${kind}`, points: edge.join(" ") }));
        } else if (banded.length) svg.append(s("line", { class: `alone ${kind}`, x1: toX(banded[0].x), x2: toX(banded[0].x), y1: toY(Number(banded[0].low)), y2: toY(Number(banded[0].high)) }));
        if (part.length > 1) svg.append(s("polyline", { class: `line ${kind}`, points: part.map((p) => `${toX(p.x)},${toY(Number(p.y))}`).join(" ") }));
        const share = (/** @type {Point} */ p) => (p.n === undefined ? 1 : Math.sqrt(p.n / most));
        if (own.length <= 60) for (const p of part) svg.append(s("circle", { class: `dot ${kind}`, cx: toX(p.x), cy: toY(Number(p.y)), r: p.n === undefined ? 2.5 : 1.2 + 3 * share(p), opacity: 0.35 + 0.65 * share(p) }, p.n !== undefined && s("title", {}, `${number(p.y)}, of ${number(p.n)}`)));
      }
    }
    return h("figure", {}, legend(series, unit), svg, h("figcaption", { class: "axis" }, isTime ? "" : xUnit));
  }

  asTable() {
    const { series, unit, x: xUnit, label } = this.given;
    const xs = [...new Set(series.flatMap((/** @type {Series} */ each) => each.points.map((point) => point.x)))].sort((a, b) => a - b);
    const counted = series.some((/** @type {Series} */ each) => each.points.some((point) => point.n !== undefined));
    const columns = [xUnit === "time" ? "time" : `#${xUnit}`, ...series.flatMap((/** @type {Series} */ each) => [`#${each.name}, ${unit}`, ...(counted ? [`#${each.name}, of`] : [])])];
    const rows = xs.map((x) => [
      xUnit === "time" ? time(x) : number(x),
      ...series.flatMap((/** @type {Series} */ each) => {
        const found = each.points.find((point) => point.x === x);
        const band = found && isNumber(found.low) && isNumber(found.high) ? ` (${decimal(found.low)} … ${decimal(found.high)})` : "";
        return [decimal(found?.y) + band, ...(counted ? [count(found?.n)] : [])];
      }),
    ]);
    return table(label, columns, rows, "", "cards flow");
  }
}

/** Horizontal bars. Data: {label, unit, bars: Bar[], markName, spanName, none}. */
class Bars extends Chart {
  isEmpty() {
    return !this.given.bars.length;
  }

  /** @param {number} wide */
  drawn(wide) {
    /** @type {{bars: Bar[], unit: string, label: string, markName?: string, spanName?: string}} */
    const { bars, unit, label, markName, spanName } = this.given;
    const left = Math.min(wide * 0.42, 8 + 7.3 * Math.max(10, ...bars.map((bar) => bar.label.length)));
    const right = 64;
    const each = 26;
    const values = bars.flatMap((bar) => [bar.value, bar.low, bar.high, bar.mark]).filter(isNumber);
    const [least, most] = [Math.min(0, ...values), Math.max(0, ...values) || 1];
    const toX = (/** @type {number} */ value) => left + ((value - least) / (most - least || 1)) * (wide - left - right);
    const high = bars.length * each + 6;
    const svg = s("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": `${label}, in ${unit}. The same as a table below.` });
    svg.append(s("line", { class: "grid", x1: toX(0), x2: toX(0), y1: 0, y2: high }));
    bars.forEach((bar, place) => {
      const y = place * each + 4;
      const [a, b] = [toX(Math.min(0, bar.value)), toX(Math.max(0, bar.value))];
      svg.append(s("text", { class: "name", x: 0, y: y + 14 }, shortened(bar.label, left / 7.3)));
      svg.append(s("rect", { class: `bar ${bar.kind ?? "policy"}`, x: a, y, width: Math.max(1, b - a), height: 18, rx: 2 }));
      if (isNumber(bar.low) && isNumber(bar.high)) {
        const middle = y + 9;
        svg.append(s("path", { class: "whisker", d: `M${toX(bar.low)} ${middle}H${toX(bar.high)}M${toX(bar.low)} ${middle - 4}v8M${toX(bar.high)} ${middle - 4}v8` }));
      }
      if (isNumber(bar.mark)) svg.append(s("path", { class: "mark", d: `M${toX(bar.mark)} ${y + 3}l5 6l-5 6l-5 -6z` }));
      svg.append(s("text", { class: "value end", x: wide, y: y + 14 }, bar.note ?? number(bar.value)));
    });
    const legends = [spanName && h("span", { class: "key whisker" }, spanName), markName && h("span", { class: "key mark" }, markName)];
    return h("figure", {}, h("div", { class: "legend" }, h("span", { class: "unit" }, unit), legends), svg);
  }

  asTable() {
    /** @type {{bars: Bar[], unit: string, label: string, markName?: string, spanName?: string}} */
    const { bars, unit, label, markName, spanName } = this.given;
    const hasSpan = bars.some((bar) => isNumber(bar.low));
    const hasMark = bars.some((bar) => isNumber(bar.mark));
    const columns = ["name", `#${unit}`, ...(hasSpan ? [`#${spanName ?? "from … to"}`] : []), ...(hasMark ? [`#${markName ?? "mark"}`] : []), "#note"];
    const rows = bars.map((bar) => [
      bar.href ? h("a", { href: bar.href }, bar.label) : bar.label,
      decimal(bar.value),
      ...(hasSpan ? [isNumber(bar.low) ? `${decimal(bar.low)} … ${decimal(bar.high)}` : ""] : []),
      ...(hasMark ? [decimal(bar.mark)] : []),
      bar.note ?? "",
    ]);
    return table(label, columns, rows, "", "cards flow");
  }
}

/** Points of the plane. Data: {label, dots: Dot[], legend: {name, kind}[], none}. Sends "choose" with an id: on a click, and by arrow keys and Enter. */
class Scatter extends Chart {
  constructor() {
    super();
    this.place = 0;
    /** @type {Map<string, SVGElement>} */
    this.circles = new Map();
    this.marked = { chosen: "", near: /** @type {Set<string>} */ (new Set()) };
  }

  /** Make one point and those near it larger; the others stay as they are drawn. @param {string} chosen @param {Set<string>} near */
  mark(chosen, near) {
    const before = this.marked;
    this.marked = { chosen, near };
    for (const id of new Set([before.chosen, ...before.near, chosen, ...near])) {
      const circle = this.circles.get(id);
      circle?.classList.toggle("chosen", id === chosen);
      circle?.classList.toggle("near", near.has(id) && id !== chosen);
      circle?.setAttribute("r", near.has(id) || id === chosen ? "5.5" : "3.5");
    }
  }

  isEmpty() {
    return !this.given.dots.length;
  }

  /** @param {number} wide */
  drawn(wide) {
    /** @type {{dots: Dot[], label: string, legend: {name: string, kind: string}[]}} */
    const { dots, label, legend: names } = this.given;
    const high = Math.max(240, Math.min(460, wide * 0.6));
    const [xs, ys] = [dots.map((dot) => dot.x), dots.map((dot) => dot.y)];
    const scale = (/** @type {number[]} */ own, /** @type {number} */ size) => {
      const [least, most] = [Math.min(...own), Math.max(...own)];
      return (/** @type {number} */ value) => 10 + ((value - least) / (most - least || 1)) * (size - 20);
    };
    const [toX, toY] = [scale(xs, wide), scale(ys, high)];
    const ring = s("circle", { class: "ring", r: 7, cx: -20, cy: -20 });
    const said = h("p", { class: "said", "aria-live": "polite" }, "Choose a point: click it, or use the arrow keys and Enter.");
    const svg = s("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, tabindex: 0, role: "application", "aria-label": `${label}: arrow keys go from point to point, Enter opens one. The same as a table below.` });
    const point = (/** @type {number} */ place) => {
      this.place = place;
      ring.setAttribute("cx", toX(dots[place].x));
      ring.setAttribute("cy", toY(dots[place].y));
      said.textContent = dots[place].note;
    };
    const open = () => this.dispatchEvent(new CustomEvent("choose", { detail: dots[this.place].id }));
    dots.forEach((dot, place) => {
      const circle = s("circle", { class: `dot ${dot.kind}`, cx: toX(dot.x), cy: toY(dot.y), r: 3.5 }, s("title", {}, dot.note));
      this.circles.set(dot.id, circle);
      circle.addEventListener("click", () => (point(place), open()));
      svg.append(circle);
    });
    svg.append(ring);
    svg.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) point((this.place + step + dots.length) % dots.length);
      else if (event.key === "Enter") open();
      else return;
      event.preventDefault();
    });
    svg.addEventListener("focus", () => point(Math.min(this.place, dots.length - 1)));
    this.mark(this.marked.chosen, this.marked.near);
    const shown = names.map((each) => h("span", { class: `key ${each.kind}` }, each.name));
    return h("figure", {}, h("div", { class: "legend" }, shown), svg, said);
  }

  asTable() {
    const { dots, label } = this.given;
    const rows = dots.slice(0, 200).map((/** @type {Dot} */ dot) => [dot.id, number(dot.x), number(dot.y), dot.note]);
    return table(`${label}: the first ${rows.length}`, ["arm", "#first component", "#second component", "what it is"], rows, "", "cards flow");
  }
}

/** A small line without axes. Data: {label, unit, values, mean}: the mean of the window stands beside it. */
class Spark extends HTMLElement {
  /** @param {{label: string, unit: string, values: (number | null)[], mean: number | null}} data */
  set data(data) {
    const { values, mean, label, unit } = data;
    const known = values.filter(isNumber);
    if (mean === null) {
      this.replaceChildren(h("span", { class: "soft" }, "no decisions yet"));
      return;
    }
    const [least, most] = stretched(Math.min(...known), Math.max(...known));
    const at = values.map((value, place) => ({ x: (place / Math.max(1, values.length - 1)) * 118 + 1, y: isNumber(value) ? 27 - ((value - least) / (most - least)) * 26 : null }));
    const lines = unbroken(at).map((part) => (part.length > 1 ? s("polyline", { class: "line policy", points: part.map((p) => `${p.x},${p.y}`).join(" ") }) : s("circle", { class: "dot policy", cx: part[0].x, cy: Number(part[0].y), r: 1.5 })));
    this.replaceChildren(
      s("svg", { viewBox: "0 0 120 28", width: 120, height: 28, role: "img", "aria-label": `${label}: ${number(mean)} ${unit}, between ${number(Math.min(...known))} and ${number(Math.max(...known))}` }, lines),
      h("span", {}, number(mean)),
    );
  }
}

/** Pieces of a line without what is not known. @param {Point[]} points @returns {Point[][]} */
function unbroken(points) {
  /** @type {Point[][]} */
  const parts = [[]];
  for (const point of points) {
    if (isNumber(point.y)) parts[parts.length - 1].push(point);
    else parts.push([]);
  }
  return parts.filter((part) => part.length);
}

/** @param {number[]} values */
const middle = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

/** @param {number} low @param {number} high */
function stretched(low, high) {
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - room, high + room];
}

/** @param {number} low @param {number} high @param {number} most */
function spread(low, high, most) {
  const parts = Math.max(1, Math.min(6, most));
  return high > low ? Array.from({ length: parts }, (_, place) => low + ((place + 0.5) / parts) * (high - low)) : [low];
}

/** @param {string} text @param {number} most */
const shortened = (text, most) => (text.length > most ? `${text.slice(0, Math.max(3, most - 1))}…` : text);

/** @param {Series[]} series @param {string} unit */
function legend(series, unit) {
  return h("div", { class: "legend" }, h("span", { class: "unit" }, unit), series.map((each) => h("span", { class: `key ${each.kind}` }, each.name)));
}

customElements.define("sl-lines", Lines);
customElements.define("sl-bars", Bars);
customElements.define("sl-scatter", Scatter);
customElements.define("sl-spark", Spark);

/** A chart with its data. @param {"lines" | "bars" | "scatter" | "spark"} kind @param {any} data @param {any} [props] */
export function chart(kind, data, props = {}) {
  const element = h(`sl-${kind}`, { id: `chart-${++charts}`, ...props });
  element.data = data;
  return element;
}
