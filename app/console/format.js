// Numbers and times in the reader's locale.

import { Exact, write } from "./json.js";

const LOCALE = navigator.languages?.length ? [...navigator.languages] : undefined;
const FORMATS = new Map();

/** @param {Intl.NumberFormatOptions} options @returns {Intl.NumberFormat} */
function format(options) {
  const name = JSON.stringify(options);
  if (!FORMATS.has(name)) FORMATS.set(name, new Intl.NumberFormat(LOCALE, options));
  return FORMATS.get(name);
}

export const NONE = "–";

/** @param {unknown} value @returns {value is number} */
export const isNumber = (value) => (typeof value === "number" || value instanceof Exact) && Number.isFinite(Number(value));

/** A whole number. @param {unknown} value */
export const count = (value) => (isNumber(value) ? format({ maximumFractionDigits: 0 }).format(/** @type {any} */ (String(value))) : NONE);

/** How many decisions, in words. @param {unknown} value */
export const decisionsIn = (value) => `${count(value)} ${Number(value) === 1 ? "decision" : "decisions"}`;

/** Some digits that count. @param {unknown} value @param {number} [digits] */
export const number = (value, digits = 3) =>
  isNumber(value) ? format({ maximumSignificantDigits: digits }).format(value) : NONE;

/** Two or three places behind the point. @param {unknown} value @param {number} [places] */
export const decimal = (value, places = 3) =>
  isNumber(value) ? format({ minimumFractionDigits: places, maximumFractionDigits: places }).format(value) : NONE;

/** A difference: with its sign. @param {unknown} value */
export const signed = (value) => (isNumber(value) ? format({ maximumSignificantDigits: 3, signDisplay: "exceptZero" }).format(value) : NONE);

/** @param {unknown} value @param {number} [places] */
export const percent = (value, places = 1) =>
  isNumber(value) ? format({ style: "percent", maximumFractionDigits: places }).format(value) : NONE;

/** @param {unknown} value */
export function bytes(value) {
  if (!isNumber(value)) return NONE;
  const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${number(value / 1024 ** power)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** @param {unknown} seconds */
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (seconds < 0.001) return `${number(seconds * 1e6)} µs`;
  if (seconds < 1) return `${number(seconds * 1e3)} ms`;
  if (seconds < 120) return `${number(seconds)} s`;
  if (seconds < 7200) return `${number(seconds / 60)} min`;
  if (seconds < 172_800) return `${number(seconds / 3600)} h`;
  return `${number(seconds / 86_400)} d`;
}

/** @param {unknown} interval */
export const between = (interval) =>
  Array.isArray(interval) ? `${number(interval[0])} … ${number(interval[1])}` : "not known yet";

/** Whether times are shown in UTC, else where the reader is. */
let isUtc = false;
export const inUtc = () => isUtc;
/** @param {boolean} value */
export const showUtc = (value) => (isUtc = value);

/** @param {number} ms @param {Intl.DateTimeFormatOptions} options */
const moment = (ms, options) => new Date(ms).toLocaleString(LOCALE, { hourCycle: "h23", ...(isUtc ? { timeZone: "UTC" } : {}), ...options });

/** Day and time, of 24 hours. @param {unknown} ms */
export const time = (ms) => (isNumber(ms) ? `${moment(ms, { dateStyle: "medium", timeStyle: "medium" })}${isUtc ? " UTC" : ""}` : NONE);

/** How long ago it was. @param {number} ms @param {number} now */
export const ago = (ms, now) => `${duration(Math.max(1, (now - ms) / 1000))} ago`;

/** As short as a span of so many ms allows. @param {number} ms @param {number} span */
export function tick(ms, span) {
  if (span > 3 * 86_400_000) return moment(ms, { month: "short", day: "numeric" });
  return moment(ms, { hour: "2-digit", minute: "2-digit", ...(span > 600_000 ? {} : { second: "2-digit" }) });
}

/** Since when, as one says it: a time of today, a day of this week, or a date. @param {number} ms @param {number} now */
export function since(ms, now) {
  const day = (/** @type {number} */ each) => moment(each, { dateStyle: "short" });
  if (day(ms) === day(now)) return moment(ms, { hour: "2-digit", minute: "2-digit" });
  return now - ms < 6 * 86_400_000 ? new Date(ms).toLocaleString("en", { weekday: "long", ...(isUtc ? { timeZone: "UTC" } : {}) }) : moment(ms, { dateStyle: "medium" });
}

/** As a share or as a number. @param {number} value @param {boolean} isShare */
const sized = (value, isShare) => (isShare ? percent(value, Math.abs(value) < 0.095 ? 1 : 0) : number(value));

/** A difference in words: "31% more". @param {number} value @param {boolean} isShare */
export const moreOrLess = (value, isShare) => `${sized(Math.abs(value), isShare)} ${value < 0 ? "less" : "more"}`;

/** Two bounds in words. @param {number[]} bounds @param {boolean} isShare */
export const span = ([low, high], isShare) => `${sized(low, isShare)} to ${sized(high, isShare)}`;

/** Words of the service as a sentence. @param {string} words */
export const sentence = (words) => `${words[0].toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}`;

/** A value of metadata or of a setting as text. @param {unknown} value */
export const plain = (value) =>
  value === null || value === undefined ? NONE : typeof value === "string" ? value : write(value);
