// Forms: fields with their errors, calls shown before they are made, and a name that is asked for.

import { hasKey, origin, Problem, send } from "./api.js";
import { button, h } from "./dom.js";
import { Exact, read, write } from "./json.js";

/** @typedef {import("./api.js").Call} Call */
/**
 * `loc`: where the service names the field, as "rules" or "policy.filter"; by default its name. `kind`: "json" is
 * read as JSON, "list" as words between commas.
 * @typedef {{name: string, label: string, kind?: "text" | "number" | "json" | "area" | "list" | "select" | "password" | "file",
 *   value?: any, options?: (string | [string, string])[], hint?: string, loc?: string, placeholder?: string, list?: string}} Field
 */

let forms = 0;

/** What the service said of an error, with a way to go on. @param {unknown} error @returns {HTMLElement} */
export function problemBox(error) {
  const problem = error instanceof Problem ? error : null;
  const words = error instanceof Error ? error.message : String(error);
  const named = (problem?.errors ?? []).map((each) => h("li", {}, h("code", {}, each.loc.join(".")), ` ${each.message}`));
  const title = problem?.title || "This did not work";
  return h("div", { class: "problem", role: "alert" }, h("strong", {}, title), h("p", {}, words), named.length > 0 && h("ul", {}, named));
}

export class Form {
  /** @param {Field[]} fields @param {{submit: string, act: (values: Record<string, any>) => unknown, changed?: () => unknown, more?: Node[], label?: string}} options */
  constructor(fields, options) {
    this.fields = fields;
    /** @type {Map<string, any>} */
    this.inputs = new Map();
    /** @type {Map<string, HTMLElement>} */
    this.errors = new Map();
    this.prefix = `f${++forms}`;
    this.box = h("div", { class: "form-problem" });
    this.button = h("button", { type: "submit", class: "primary" }, options.submit);
    this.options = options;
    this.el = h(
      "form",
      { novalidate: true, "aria-label": options.label ?? options.submit, on: { submit: (/** @type {Event} */ event) => this.submit(event), input: () => options.changed?.() } },
      h("div", { class: "fields" }, fields.map((field) => this.row(field))),
      this.box,
      h("div", { class: "buttons" }, this.button, options.more ?? []),
    );
  }

  /** @param {Field} field */
  row(field) {
    const id = `${this.prefix}-${field.name}`;
    const about = `${id}-about`;
    /** @type {Record<string, any>} */
    const props = { id, name: field.name, "aria-describedby": about, placeholder: field.placeholder, autocomplete: "off" };
    const value = field.kind === "json" && field.value !== undefined && typeof field.value !== "string" ? write(field.value) : (field.value ?? "");
    let input;
    if (field.kind === "select") {
      const options = (field.options ?? []).map((each) => (typeof each === "string" ? [each, each] : each));
      input = h("select", { ...props, value: value || options[0]?.[0] }, options.map(([name, text]) => h("option", { value: name }, text)));
    } else if (field.kind === "json" || field.kind === "area") {
      input = h("textarea", { ...props, value, rows: field.kind === "area" ? 4 : 2, spellcheck: "false", class: "code" });
    } else {
      const type = { number: "text", password: "password", file: "file" }[/** @type {string} */ (field.kind)] ?? "text";
      input = h("input", { ...props, type, value: type === "file" ? undefined : value, inputmode: field.kind === "number" && "decimal", list: field.list });
    }
    const error = h("span", { class: "error" });
    this.inputs.set(field.name, input);
    this.errors.set(field.name, error);
    return h("div", { class: `field of-${field.kind ?? "text"}` }, h("label", { for: id }, field.label), input, h("span", { class: "about", id: about }, h("span", { class: "hint" }, field.hint ?? ""), error));
  }

  /** @param {string} name @returns {string} */
  text(name) {
    return this.inputs.get(name)?.value ?? "";
  }

  /** @param {string} name @param {any} value */
  set(name, value) {
    const input = this.inputs.get(name);
    if (input) input.value = typeof value === "string" ? value : write(value);
  }

  /** Hide a field, which then has no value, or show it. @param {string} name @param {boolean} isHidden */
  hide(name, isHidden) {
    this.inputs.get(name).closest(".field").hidden = isHidden;
  }

  /** What is typed in; fields that are empty or hidden are absent. Throws Problem that names the field. @returns {Record<string, any>} */
  values() {
    /** @type {Record<string, any>} */
    const found = {};
    const wrong = [];
    for (const { name, kind, loc } of this.fields) {
      const input = this.inputs.get(name);
      if (input.closest(".field")?.hidden) continue;
      const text = kind === "file" ? "" : input.value.trim();
      if (kind === "file") found[name] = input.files?.[0];
      else if (!text) continue;
      else if (kind === "list") found[name] = text.split(",").map((/** @type {string} */ word) => word.trim()).filter(Boolean);
      else if (kind === "number" || kind === "json") {
        try {
          found[name] = read(text);
          if (kind === "number" && typeof found[name] !== "number" && !(found[name] instanceof Exact)) throw new SyntaxError("must be a number");
        } catch (error) {
          const words = kind === "number" ? "must be a number, such as 0.5" : `is no JSON: ${/** @type {Error} */ (error).message}`;
          wrong.push({ loc: ["body", ...(loc ?? name).split(".")], message: words });
        }
      } else found[name] = text;
    }
    if (wrong.length) throw new Problem({ status: 0, title: "Not sent", detail: "A field cannot be read.", errors: wrong });
    return found;
  }

  /** Show an error at the fields that it names, and what is left above the buttons. @param {unknown} error */
  show(error) {
    this.clear();
    const rest = [];
    for (const each of error instanceof Problem ? error.errors : []) {
      const where = each.loc.slice(1).join(".");
      const field = this.fields.find(({ name, loc }) => [loc ?? name].some((own) => where === own || where.startsWith(`${own}.`)));
      if (!field) rest.push(each);
      else {
        const inside = where.slice((field.loc ?? field.name).length + 1);
        const at = /** @type {HTMLElement} */ (this.errors.get(field.name));
        at.textContent = [at.textContent, `${inside && `${inside}: `}${each.message}`].filter(Boolean).join(" ");
        this.inputs.get(field.name).setAttribute("aria-invalid", "true");
      }
    }
    const first = this.el.querySelector("[aria-invalid=true]");
    if (first) first.focus();
    if (error instanceof Problem && first) error = Object.assign(new Problem({ status: error.status, title: error.title, detail: error.message }), { errors: rest });
    this.box.replaceChildren(problemBox(error));
  }

  clear() {
    this.box.replaceChildren();
    for (const [name, error] of this.errors) {
      error.textContent = "";
      this.inputs.get(name).removeAttribute("aria-invalid");
    }
  }

  /** @param {Event} event */
  async submit(event) {
    event.preventDefault();
    if (this.button.getAttribute("aria-busy") === "true") return;
    this.clear();
    await during(this.button, async () => this.options.act(this.values())).catch((error) => this.show(error));
  }
}

/** A button is busy while something is under way. @param {HTMLElement} target @param {() => Promise<unknown>} work */
export async function during(target, work) {
  target.setAttribute("aria-busy", "true");
  try {
    await work();
  } finally {
    target.removeAttribute("aria-busy");
  }
}

/** A button whose errors stand beside it. @param {string} text @param {() => Promise<unknown>} work @param {any} [props] */
export function action(text, work, props = {}) {
  const box = h("span", { class: "beside" });
  const run = () => (box.replaceChildren(), work().catch((error) => box.replaceChildren(problemBox(error))));
  const target = button(text, () => (target.getAttribute("aria-busy") === "true" ? null : during(target, run)), props);
  return h("span", { class: "action" }, target, box);
}

/** A value as Python writes it. @param {any} value @returns {string} */
export function python(value) {
  if (value === null || value === undefined) return "None";
  if (value === true || value === false) return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (value instanceof Exact) return value.source;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** Keyword arguments. @param {Record<string, any>} fields */
export const keywords = (fields) => Object.entries(fields).map(([name, value]) => `, ${name}=${python(value)}`).join("");

/** @param {Call} call */
export function curl(call) {
  const quoted = (/** @type {string} */ text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = [`curl -X ${call.method} ${quoted(origin + call.path)}`];
  if (hasKey()) parts.push(`-H "Authorization: Bearer $SHORTLIST_KEY"`);
  if (call.body instanceof Blob) parts.push("-H 'Content-Type: application/octet-stream' --data-binary @FILE");
  else if (call.body !== undefined) parts.push(`-H 'Content-Type: application/json'`, `-d ${quoted(write(call.body))}`);
  return parts.join(" \\\n  ");
}

/** The text of a call, in the ways there are, each to copy. @param {[string, string][]} ways name and text */
export function calls(ways) {
  const code = h("code", {});
  const said = h("span", { class: "soft", "aria-live": "polite" });
  /** @type {HTMLButtonElement[]} */
  const buttons = ways.map(([name, text]) => button(name, () => show(name, text), { "aria-pressed": "false", class: "way" }));
  const show = (/** @type {string} */ name, /** @type {string} */ text) => {
    code.textContent = text;
    said.textContent = "";
    for (const each of buttons) each.setAttribute("aria-pressed", String(each.textContent === name));
  };
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      said.textContent = "copied";
    } catch {
      getSelection()?.selectAllChildren(code);
      said.textContent = "selected: copy it with your keyboard";
    }
  });
  show(...ways[0]);
  return h("div", { class: "calls" }, h("div", { class: "buttons" }, buttons, copy, said), h("pre", { tabindex: 0, role: "region", "aria-label": `the call, ${ways[0][1].split("\n")[0].slice(0, 80)}` }, code));
}

/** A call that is not made yet. @param {Call} call */
export function preview(call) {
  const body = call.body === undefined ? "" : `\n${write(call.body, 2)}`;
  const short = body.length > 3000 ? `${body.slice(0, 3000)}\n… ${body.length.toLocaleString()} characters` : body;
  return calls([
    ["HTTP", `${call.method} ${call.path}${short}`],
    ["curl", body.length > 20_000 ? curl({ ...call, body: "@FILE" }).replace(`-d '"@FILE"'`, "-d @FILE") : curl(call)],
  ]);
}

/** The calls of a form as it is filled in, and what draws them again. @param {Form} form @param {(values: any) => Call[]} made @returns {[HTMLElement, () => void]} */
export function previewOf(form, made) {
  const box = h("div", {});
  const draw = () => {
    try {
      box.replaceChildren(...made(form.values()).map(preview));
    } catch {
      // a field cannot be read yet
    }
  };
  return [h("details", { on: { toggle: draw } }, h("summary", {}, "The calls it makes"), box), draw];
}

/** What deletes by one call, asks for the name and then shows another page. @param {import("./main.js").View} view @param {string} name @param {string} at the path @param {string} consequence @param {string[]} to the parts of its address @param {string} [text] */
export const deletion = (view, name, at, consequence, to, text = `Delete ${name}`) => destroy(text, name, consequence, async () => (await send({ method: "DELETE", path: at }, view.signal), view.go(to)));

/** What destroys asks for the name. @param {string} text of the button @param {string} name @param {string} consequence @param {() => Promise<unknown>} act */
export function destroy(text, name, consequence, act) {
  const form = new Form([{ name: "name", label: `Type ${name} to go on`, hint: consequence }], {
    submit: text,
    act: async (values) => {
      if (values.name !== name) throw new Problem({ status: 0, title: "Not sent", detail: "This is another name.", errors: [{ loc: ["body", "name"], message: `must be ${name}` }] });
      await act();
    },
  });
  form.button.className = "danger";
  return h("details", { class: "destroy" }, h("summary", {}, text), form.el);
}
