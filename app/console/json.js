// JSON without loss. JSON.parse rounds 9007199254740993 to ...992 and reads 1e20 as an integer of 21 digits; what is
// read here is written again as it was.

// Stands for a number in a text while that is read or written. It is random, so no text that is stored holds it.
const MARK = `${crypto.getRandomValues(new Uint32Array(4)).join("-")}:`;
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;

/** A number that a Number would write in another way. In arithmetic and comparisons it is the nearest Number. */
export class Exact {
  /** @param {string} source as it stands in JSON */
  constructor(source) {
    this.source = source;
  }

  /** Whether the nearest Number is another number. */
  get isRounded() {
    return digits(this.source) !== digits(String(Number(this.source)));
  }

  valueOf() {
    return Number(this.source);
  }

  toString() {
    return this.source;
  }
}

/** The digits that count, and the power of ten of the last one: equal for equal numbers. @param {string} text */
function digits(text) {
  const [, sign, whole, part = "", power = "0"] = /^(-?)(\d+)\.?(\d*)(?:e([+-]?\d+))?$/i.exec(text) ?? [];
  if (whole === undefined) return text; // beyond what a Number can be
  const all = (whole + part).replace(/^0+/, "");
  const kept = all.replace(/0+$/, "");
  return kept && `${sign}${kept}e${Number(power) - part.length + all.length - kept.length}`;
}

/** What somebody has written and may write again: every number keeps its spelling. Throws SyntaxError. @param {string} text @returns {any} */
export const read = (text) => parsed(text, (token) => String(Number(token)) !== token);

/** What is computed with: a number is a Number, but where that would round it. Throws SyntaxError. @param {string} text @returns {any} */
export const readValues = (text) => parsed(text, (token) => String(Number(token)) !== token && new Exact(token).isRounded);

/** @param {string} text @param {(token: string) => boolean} isKept which numbers become Exact @returns {any} */
function parsed(text, isKept) {
  const value = JSON.parse(text);
  /** @type {Exact[]} */
  const kept = [];
  const marked = text.replace(TOKEN, (token) => (token.startsWith('"') || !isKept(token) ? token : `"${MARK}${kept.push(new Exact(token)) - 1}"`));
  if (!kept.length) return value;
  return JSON.parse(marked, (_, each) => (typeof each === "string" && each.startsWith(MARK) ? kept[Number(each.slice(MARK.length))] : each));
}

/**
 * The value as JSON. `literal` is how an Exact is written, by default as it was read.
 * @param {any} value @param {number} [indent] @param {(exact: Exact) => string} [literal] @returns {string}
 */
export function write(value, indent, literal = String) {
  /** @type {Exact[]} */
  const kept = [];
  const marked = JSON.stringify(value, (_, each) => (each instanceof Exact ? `${MARK}${kept.push(each) - 1}` : each), indent);
  return kept.length ? marked.replace(new RegExp(`"${MARK}(\\d+)"`, "g"), (_, place) => literal(kept[place])) : marked;
}

/** A field of what was read, not of all objects as "constructor" is. @param {any} object @param {string} name */
export const fieldOf = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);
