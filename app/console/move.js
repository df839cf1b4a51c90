// A move to another catalogue, in three steps: which one, what it would do, and the move itself.

import { get, path, send } from "./api.js";
import { empty, facts, h, panel, warning } from "./dom.js";
import { count, decimal, number, percent } from "./format.js";
import { destroy, Form, previewOf } from "./forms.js";
import { names } from "./measure.js";

const LOOK_MS = 2000;
const CARRIES = [["map", "map: by what both catalogues have of the same arms"], ["none", "none: learners begin from nothing"]];

/** @param {import("./main.js").View} view @param {HTMLElement} body @param {any} bandit */
export async function moving(view, body, bandit) {
  const at = path`/v1/bandits/${bandit.id}/move`;
  const others = (await names("catalogues", view.signal)).filter((each) => each.id !== bandit.catalogue);
  const state = h("div", {});
  const second = h("div", { "aria-live": "polite" }, empty("Not looked at yet."));
  const third = h("div", {}, empty("Look first at what it would do."));
  body.append(h("div", {}, state));
  view.live(LOOK_MS, state, async () => {
    const { move } = await get(path`/v1/bandits/${bandit.id}`, view.signal);
    state.querySelector(".carried")?.remove();
    if (move) state.append(h("p", { class: "carried" }, `A move from ${move.from} to ${move.to} is under way: ${percent(move.carried)} of ${count(move.learners)} learners are carried. `, h("progress", { max: 1, value: move.carried, "aria-label": "learners carried" })));
  });
  if (!others.length) return void body.append(panel("Move", empty("There is no other catalogue. Put the same arms, with other features, into one, and come back.")));
  const call = (/** @type {any} */ values, /** @type {boolean} */ dry) => ({ method: "POST", path: at, body: { ...values, dry_run: dry } });
  const form = new Form(
    [
      { name: "catalogue", label: "To this catalogue", kind: "select", options: others.map((each) => each.id), value: view.query.get("to") ?? "" },
      { name: "carry", label: "What was learned", kind: "select", options: /** @type {[string, string][]} */ (CARRIES) },
    ],
    {
      submit: "What would it do? (dry run)",
      act: async (values) => {
        const found = await send(call(values, true), view.signal);
        second.replaceChildren(...told(found));
        third.replaceChildren(destroy(`Move ${bandit.id} to ${values.catalogue}`, bandit.id, `From then on every choice is from ${values.catalogue}; earlier decisions can be rewarded as long as ever. Moving back is another map, not an undo.`, async () => {
          await send(call(values, false), view.signal);
          view.go(["bandits", bandit.id, "versions"]);
        }));
      },
    },
  );
  const [shown] = previewOf(form, (values) => [call(values, true), call(values, false)]);
  body.append(h("div", { class: "steps" }, panel("1. To where", form.el, shown), panel("2. What it would do", second), panel("3. Move", third)));
  return undefined;
}

/** @param {any} found */
function told({ arms, map, agreement, learners, carry, warnings }) {
  return [
    facts([["Arms in both", count(arms.common)], ["Only in the old one", count(arms.only_from)], ["Only in the new one", count(arms.only_to)], ["Carried", carry], ["Of the new features explained", map ? percent(map.r2) : "nothing is carried"], ["Weighed by", map ? (map.shown === "log" ? "how often arms were shown" : "all arms alike") : "–"], ["Agreement", agreement === null ? "no learner to compare" : decimal(agreement)], ["Learners", number(learners)]]),
    ...warnings.map(warning),
  ];
}
