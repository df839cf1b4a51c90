// The frame around all pages: navigation, key, whether the service answers, and which page an address shows.

import { Away, enterKey, get, hasKey, isAway, isRefused, news, Problem } from "./api.js";
import { address, button, h, skeleton } from "./dom.js";
import { Form, problemBox } from "./forms.js";
import { inUtc, showUtc } from "./format.js";
import { fieldOf } from "./json.js";
import * as overview from "./page-overview.js";

/**
 * A page while it is shown. `live` does something now and every so many ms while somebody looks; an error stands
 * in `box` until it works again.
 * @typedef {{root: HTMLElement, parts: string[], query: URLSearchParams, signal: AbortSignal,
 *   live: (ms: number, box: HTMLElement, work: () => Promise<unknown>) => () => void,
 *   remember: (fields: Record<string, unknown>) => void, go: (parts: string[], query?: Record<string, unknown>) => void}} View
 */
/** @typedef {{show: (view: View) => Promise<unknown> | unknown}} PageModule */

// What loads a page, by the first part of its address. Only the first page comes with this module. The link of a page
// of a plug-in names its module.
/** @type {Record<string, () => Promise<PageModule>>} */
const PAGES = {
  "": async () => overview,
  try: () => import("./page-try.js"),
  bandits: () => import("./page-bandit.js"),
  catalogues: () => import("./page-catalogue.js"),
  keys: () => import("./page-key.js"),
  decisions: () => import("./page-decision.js"),
  queries: () => import("./page-queries.js"),
};
const DRAWN_MS = 1000;

// The frame stands in index.html, so that it is seen before this module is here.
const [nav, state, entry, main] = ["nav", ".state", ".entry", "main"].map((name) => /** @type {HTMLElement} */ (document.querySelector(name)));
const zone = button("", () => {
  showUtc(!inUtc());
  sayZone();
  show();
}, { class: "quiet" });
let leave = new AbortController();
let waits = false;

state.after(button("API key", () => askForKey(""), { class: "quiet" }), zone);
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => show());
for (const name of ["away", "access", "key"]) news.addEventListener(name, () => say());
news.addEventListener("back", () => {
  say();
  if (waits) show(); // else the page goes on where it was, with what was typed into it
});
news.addEventListener("entered", () => show());
news.addEventListener("key", () => askForKey(hasKey() ? "The service does not know this key." : "This service asks for an API key."));
say();
sayZone();
show();

/** Whether the service answers, and takes the key. */
function say() {
  document.body.classList.toggle("away", isAway());
  document.body.classList.toggle("refused", isRefused());
  const refused = hasKey() ? "The service does not take this API key" : "The service asks for an API key";
  state.textContent = isAway() ? "The service does not answer. This page goes on as soon as it does." : isRefused() ? refused : "Connected";
}

function sayZone() {
  zone.textContent = inUtc() ? "Times: UTC" : "Times: local";
  zone.setAttribute("title", inUtc() ? "Show times where you are" : "Show times in UTC");
}

/** @param {string} why */
function askForKey(why) {
  if (entry.childElementCount && why) return;
  const form = new Form([{ name: "key", label: "API key", kind: "password", hint: "Kept in the memory of this page alone. `shortlist key` makes one; scope read shows, admin may change." }], {
    submit: "Use this key",
    act: (values) => {
      entry.replaceChildren();
      enterKey(values.key ?? "");
    },
    more: [button("Close", () => entry.replaceChildren())],
  });
  entry.replaceChildren(h("section", { class: "panel ask" }, h("h2", {}, "API key"), why && h("p", {}, why), form.el));
  form.inputs.get("key").focus();
}

/** Show the page of the address. */
async function show() {
  leave.abort();
  leave = new AbortController();
  waits = false;
  const { signal } = leave;
  const [place, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = place.split("/").map(decoded);
  let load = fieldOf(PAGES, name);
  let title = "Not here";
  /** @type {string | undefined} */
  let module;
  for (const each of nav.querySelectorAll("a")) {
    const own = each.getAttribute("href") === address(name ? [name] : []);
    if (own) [title, module] = [each.textContent, each.dataset.module];
    if (own) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  if (module) load = () => import(`./${module}`);
  // What it is of: a bandit or a catalogue, a key of a bandit, what a plug-in has last in an address.
  const names = module ? parts.slice(-1) : parts.slice(0, name === "keys" ? 2 : 1);
  const root = h("div", { class: "page" });
  const held = main.contains(document.activeElement);
  main.replaceChildren(root);
  document.title = `${[title, ...names].join(" · ")} · Shortlist`;
  if (!load) {
    root.append(h("h1", {}, "Not here"), h("p", {}, "No page has this address. ", h("a", { href: "#/" }, "Overview")));
    root.dataset.state = "shown";
    return;
  }
  /** @type {View} */
  const view = {
    root,
    parts,
    query: new URLSearchParams(search),
    signal,
    live: (ms, box, work) => live(ms, box, work, signal),
    remember(fields) {
      const all = { ...Object.fromEntries(view.query), ...fields };
      history.replaceState(null, "", address([name, ...parts].filter(Boolean), all));
      view.query = new URLSearchParams(location.hash.split("?")[1] ?? "");
    },
    go(to, query) {
      const next = address(to, query);
      if (location.hash === next) show();
      else location.hash = next;
    },
  };
  const waiting = skeleton();
  const heading = h("h1", { tabindex: -1 }, [title, ...names].join(" · "));
  root.append(heading, waiting);
  if (held) heading.focus(); // else it would be lost with the link that led here
  try {
    const page = await load().catch(() => get("/healthz", signal).then(load)); // throws Away if that is why
    if (!signal.aborted) await page.show(view);
  } catch (error) {
    if (!signal.aborted && !(error instanceof Away)) root.append(failed(error));
    waits = !signal.aborted && error instanceof Away;
    if (waits) root.append(h("p", { class: "empty" }, "Waiting for the service."));
  } finally {
    waiting.remove();
    root.dataset.state = "shown";
  }
}

/** @param {unknown} error */
function failed(error) {
  const gone = error instanceof Problem && error.status === 404;
  return h("div", {}, problemBox(error), gone && h("p", {}, "It may have been deleted. ", h("a", { href: "#/" }, "Back to the overview")), button("Try again", () => show()));
}

/** @param {number} ms @param {HTMLElement} box @param {() => Promise<unknown>} work @param {AbortSignal} signal */
function live(ms, box, work, signal) {
  let timer = 0;
  const note = h("div", { class: "note" });
  box.prepend(note);
  const turn = async () => {
    clearTimeout(timer);
    if (signal.aborted) return;
    if (!document.hidden && !isAway()) {
      try {
        await work();
        note.replaceChildren();
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof Away)) note.replaceChildren(problemBox(error));
      }
    }
    timer = setTimeout(turn, Math.max(DRAWN_MS, ms));
  };
  turn();
  const look = () => (document.hidden ? null : turn());
  document.addEventListener("visibilitychange", look, { signal });
  news.addEventListener("back", turn, { signal });
  return turn;
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
