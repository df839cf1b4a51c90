// One-shot queries: the same question to every way of searching, side by side.

import { get, path, Problem, send } from "./api.js";
import { chart } from "./charts.js";
import { h, link, panel, table } from "./dom.js";
import { count, decimal, number, percent } from "./format.js";
import { Form, preview } from "./forms.js";
import { read, write } from "./json.js";
import { chooseOne, titlesOf } from "./measure.js";

const METHODS = { exact: "Exact", bounded_me: "BoundedME", racing: "Racing", hnsw: "Graph", adaptive: "Adaptive" };
const MOST_BYTES = 4_000_000;

/** @param {import("./main.js").View} view */
export async function show(view) {
  const { root, signal, parts, query: given } = view;
  const [name] = parts;
  if (!name) return chooseOne(view, "queries", "catalogues", ["#arms"], (each) => [count(each.size)]);
  const catalogue = await get(path`/v1/catalogues/${name}`, signal);
  const [first] = (await get(path`/v1/catalogues/${name}/arms?limit=1`, signal)).items;
  const result = h("div", { class: "page", "aria-live": "polite" });
  const form = new Form(
    [
      { name: "arm", label: "Like this arm", value: given.get("arm") ?? (given.get("query") ? "" : first?.id), hint: "The id of an arm; or else a vector or a file." },
      { name: "objective", label: "Wanted", kind: "select", options: [["inner_product", "largest inner product"], ["nearest", "nearest"]], value: given.get("objective") ?? "inner_product" },
      { name: "k", label: "How many (k)", kind: "number", value: given.get("k") ?? "5" },
      { name: "epsilon", label: "epsilon", kind: "number", value: given.get("epsilon") ?? "0.1", hint: "How far from the best, as a mean over coordinates." },
      { name: "delta", label: "delta", kind: "number", value: given.get("delta") ?? "0.05", hint: "The probability with which that may fail." },
      { name: "seed", label: "Seed", kind: "number", value: given.get("seed") ?? "1" },
      { name: "query", label: "Or a vector", kind: "json", value: given.get("query") ?? "", placeholder: `[${new Array(Math.min(catalogue.dim, 6)).fill(0.1).join(", ")}${catalogue.dim > 6 ? ", …" : ""}]`, hint: `${count(catalogue.dim)} numbers` },
      { name: "file", label: "Or a file", kind: "file", hint: "A JSON list of numbers, or numbers between commas." },
      { name: "filter", label: "Filter", kind: "json", value: given.get("filter") ?? "" },
    ],
    {
      submit: "Ask all of them",
      act: async ({ arm, file, query, ...options }) => {
        view.remember({ arm, query: form.text("query"), ...Object.fromEntries(Object.entries(options).map(([field, value]) => [field, typeof value === "object" ? write(value) : value])) });
        const vector = await vectorOf(catalogue, arm, query, file, signal);
        result.replaceChildren();
        const calls = Object.keys(METHODS).map((method) => ({ method: "POST", path: path`/v1/catalogues/${name}/mips`, body: { query: vector, ...options, method } }));
        const answers = [];
        for (const call of calls) answers.push(await send(call, signal));
        const named = await titlesOf(catalogue, answers.flatMap((answer) => answer.arms.map((/** @type {any} */ each) => each.id)), signal);
        result.replaceChildren(...compared(catalogue, answers, named), panel("The first of the calls", preview(calls[0])));
      },
    },
  );
  root.append(h("p", {}, "The arms of ", link(name, ["catalogues", name]), " that fit a vector best, without any learning. Each way answers the same question; look at what they read."), panel("The question", form.el), result);
  return undefined;
}

/** A mistake in the question, at its field. @param {string} field @param {string} message */
const wrong = (field, message) => new Problem({ status: 0, title: "Not sent", detail: "The question cannot be read.", errors: [{ loc: ["body", field], message }] });

/** @param {any} catalogue @param {string | undefined} arm @param {number[] | undefined} vector @param {File | undefined} file @param {AbortSignal} signal */
async function vectorOf(catalogue, arm, vector, file, signal) {
  if (file) return vectorIn(file, catalogue.dim);
  if (vector) return vector;
  if (!arm) throw wrong("arm", "Name an arm, or give a vector or a file.");
  return (await get(path`/v1/catalogues/${catalogue.id}/arms/${arm}`, signal)).features;
}

/** The numbers of a file. Throws Problem that says what is wrong with it. @param {File} file @param {number} dim */
async function vectorIn(file, dim) {
  if (file.size > MOST_BYTES) throw wrong("file", `is too large for one vector: at most ${count(MOST_BYTES)} bytes`);
  const text = (await file.text()).trim();
  if (/[\0\uFFFD]/.test(text)) throw wrong("file", "is no text: a vector is a JSON list of numbers, or numbers between commas");
  let words;
  try {
    words = /^[[{]/.test(text) ? read(text) : text.split(/[\s,;]+/);
  } catch (error) {
    throw wrong("file", `is no JSON: ${/** @type {Error} */ (error).message}`);
  }
  if (!Array.isArray(words)) throw wrong("file", "must be a list of numbers");
  const numbers = words.map((word) => (word === "" || Array.isArray(word) || word === null ? NaN : Number(word)));
  const bad = numbers.findIndex((number) => !Number.isFinite(number));
  if (bad >= 0) throw wrong("file", `number ${count(bad + 1)} is no number: ${(write(words[bad]) ?? "nothing").slice(0, 60)}`);
  if (numbers.length !== dim) throw wrong("file", `has ${count(numbers.length)} numbers, and each arm has ${count(dim)}`);
  return numbers;
}

/** @param {any} catalogue @param {any[]} answers @param {(id: string) => string} named */
function compared(catalogue, answers, named) {
  const exact = new Set(answers[0].arms.map((/** @type {any} */ each) => each.id));
  const name = (/** @type {any} */ answer) => METHODS[/** @type {keyof typeof METHODS} */ (answer.method)];
  const rows = answers.map((answer) => {
    const same = answer.arms.filter((/** @type {any} */ each) => exact.has(each.id)).length;
    const { kind, epsilon, delta, reason } = answer.guarantee;
    const promise = kind === "pac" ? `within ${number(epsilon)}, but for a probability of ${number(delta)}` : kind === "exact" ? "exact" : "none";
    return [name(answer), `${count(same)} of ${count(exact.size)}`, count(answer.cost.reads ?? undefined), percent(answer.cost.reads === null ? NaN : answer.cost.reads / answer.cost.exhaustive_reads), `${number(answer.elapsed_ms)} ms`, h("span", {}, promise, reason && h("span", { class: "meaning" }, reason))];
  });
  const places = Math.max(...answers.map((answer) => answer.arms.length));
  const lists = Array.from({ length: places }, (_, place) => [count(place + 1), ...answers.map((answer) => answer.arms[place] && h("span", {}, link(named(answer.arms[place].id), ["catalogues", catalogue.id], { arm: answer.arms[place].id }), h("div", { class: "hint" }, decimal(answer.arms[place].value))))]);
  const bar = (/** @type {any} */ answer, /** @type {number} */ value, /** @type {string} */ note) => ({ label: name(answer), value, note });
  return [
    panel("Side by side", table("Ways of searching", ["way", "#of the exact answers", "#numbers read", "#of all", "#time", "promise"], rows, "", "cards")),
    h("div", { class: "cols" },
      panel("Read", chart("bars", { label: "Numbers read", unit: "coordinates", bars: answers.filter((answer) => answer.cost.reads !== null).map((answer) => bar(answer, answer.cost.reads, count(answer.cost.reads))) })),
      panel("Time", chart("bars", { label: "Time", unit: "ms", bars: answers.map((answer) => bar(answer, answer.elapsed_ms, `${number(answer.elapsed_ms, 2)} ms`)) }))),
    panel("Answers", table("Answers", ["#place", ...answers.map(name)], lists, "", "cards")),
  ];
}
