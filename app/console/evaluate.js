// Evaluations that go on by themselves: their progress, a way to cancel them, and whether their answer holds.

import { get, path, send } from "./api.js";
import { button, h } from "./dom.js";
import { count, percent } from "./format.js";

const LOOK_MS = 300;
const MOST_MISSING = 0.2;

/**
 * The answers of several evaluations of a bandit, one after the other; null of one that was cancelled. Their progress stands
 * in `box`, with a button that cancels. Throws Problem.
 * @param {string} bandit @param {any[]} bodies @param {HTMLElement} box @param {AbortSignal} signal @returns {Promise<any[] | null>}
 */
export async function evaluate(bandit, bodies, box, signal) {
  const at = path`/v1/bandits/${bandit}/evaluations`;
  const bar = h("progress", { "aria-label": "the evaluation runs" });
  const said = h("span", { class: "soft", role: "status" }, "Waiting …");
  let cancelled = false;
  let id = "";
  const gone = () => id && send({ method: "DELETE", path: `${at}/${id}` }).catch(() => null);
  box.replaceChildren(h("div", { class: "progress" }, bar, said, button("Cancel", () => ((cancelled = true), gone()), { class: "quiet" })));
  signal.addEventListener("abort", gone, { once: true });
  const answers = [];
  try {
    for (const [place, body] of bodies.entries()) {
      ({ id } = await send({ method: "POST", path: `${at}?wait=none`, body }, signal));
      for (;;) {
        if (cancelled) return await gone(), null;
        const job = await get(`${at}/${id}`, signal).catch((error) => (cancelled && error.status === 404 ? null : Promise.reject(error)));
        if (!job) return null;
        if (job.state === "done") {
          answers.push(job.result);
          break;
        }
        if (job.state === "failed" || job.state === "lost") throw new Error(job.error);
        if (job.progress.of) [bar.max, bar.value] = [job.progress.of, job.progress.decisions];
        said.textContent = `${bodies.length > 1 ? `${count(place + 1)} of ${count(bodies.length)}: ` : ""}${count(job.progress.decisions)} ${job.progress.of ? `of ${count(job.progress.of)} ` : ""}decisions`;
        await new Promise((done) => setTimeout(done, LOOK_MS));
      }
    }
    return answers;
  } finally {
    signal.removeEventListener("abort", gone);
    box.replaceChildren();
  }
}

/** Would the log support it? A word, and why. @param {any} answer @returns {{kind: string, word: string, why: string}} */
export function supported({ support, estimates, logged }) {
  const known = estimates.some((/** @type {any} */ each) => each.value !== null);
  const missing = support?.missing_share ?? 0;
  const why = `${percent(missing)} of what it would do was never done in ${count(logged.decisions)} logged decisions`;
  if (!known) return { kind: "bad", word: "not supported", why };
  return missing > MOST_MISSING ? { kind: "warn", word: "weakly supported", why } : { kind: "good", word: "supported", why };
}

/** The steadiest estimate that there is. @param {any[]} estimates */
export const bestOf = (estimates) => ["dr", "snips", "ips"].map((name) => estimates.find((each) => each.estimator === name && each.value !== null)).find(Boolean);
