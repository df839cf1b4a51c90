// JSON without loss. JSON.parse rounds 9007199254740993 to ...992 and reads 1e20 as an integer of 21 digits; what is
// read here is written again as it was.

// Stands for a number in a text while that is read or written. It is random, so no text that is stored holds it.
const MARK = `${crypto.getRandomValues(new Uint32Array(4)).join("-")}:`;
// A text, which is passed over, or a number; an integer that may be too long for a Number.
const NUMBERS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
const LONG_INTEGERS = /"[^"\\]*(?:\\.[^"\\]*)*"|(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g;

/** A number that a Number would write in another way. In arithmetic and comparisons it is the nearest Number. */
export class Exact {
  /** @param {string} source as it stands in JSON */
  constructor(source) {
    this.source = source;
  }

  valueOf() {
    return Number(this.source);
  }

  toString() {
    return this.source;
  }
}

/** What somebody has written and may write again: every number keeps its spelling. Throws SyntaxError. @param {string} text @returns {any} */
export const read = (text) => parsed(text, NUMBERS);

/** What is computed with: a number is a Number, but for integers that would be rounded; the service's other numbers are those of JavaScript. Throws SyntaxError. @param {string} text @returns {any} */
export const readValues = (text) => (/(?<![\d.eE+])\d{16}/.test(text) ? parsed(text, LONG_INTEGERS) : JSON.parse(text));

/** @param {string} text @param {RegExp} tokens what may become Exact @returns {any} */
function parsed(text, tokens) {
  const value = JSON.parse(text);
  /** @type {Exact[]} */
  const kept = [];
  const marked = text.replace(tokens, (token) => (token.startsWith('"') || String(Number(token)) === token ? token : `"${MARK}${kept.push(new Exact(token)) - 1}"`));
  if (!kept.length) return value;
  return JSON.parse(marked, (_, each) => (typeof each === "string" && each.startsWith(MARK) ? kept[Number(each.slice(MARK.length))] : each));
}

/** The value as JSON. `literal` is how an Exact is written, by default as it was read. @param {any} value @param {number} [indent] @param {(exact: Exact) => string} [literal] @returns {string} */
export function write(value, indent, literal = String) {
  /** @type {Exact[]} */
  const kept = [];
  const marked = JSON.stringify(value, (_, each) => (each instanceof Exact ? `${MARK}${kept.push(each) - 1}` : each), indent);
  return kept.length ? marked.replace(new RegExp(`"${MARK}(\\d+)"`, "g"), (_, place) => literal(kept[place])) : marked;
}

/** A field of what was read, not of all objects as "constructor" is. @param {any} object @param {string} name */
export const fieldOf = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);
