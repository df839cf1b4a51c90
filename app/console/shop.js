// The example shop: 240 articles, a bandit over them, and visitors who click on what they like.

import { send } from "./api.js";

const KINDS = ["mug", "lamp", "chair", "rug", "vase", "clock", "shelf", "plant", "poster", "blanket", "kettle", "mirror"];
const MAKERS = ["Aldo", "Birke", "Corvin", "Delta", "Esche", "Fjord"];
const COLOURS = ["blue", "green", "red", "white", "black", "yellow"];
const DIM = 8;
const EACH = 20;
export const CATALOGUE = "shop";
export const BANDIT = "shop-window";

/** Numbers that look random and are the same each time (mulberry32). @param {number} seed */
export function numbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** @param {() => number} random */
const normal = (random) => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

/** 240 articles: those of a kind lie together. */
export function articles() {
  const random = numbers(7);
  return KINDS.flatMap((kind) => {
    const centre = Array.from({ length: DIM }, () => normal(random));
    return Array.from({ length: EACH }, (_, place) => ({
      id: `${kind}-${place + 1}`,
      features: centre.map((value) => Number((0.45 * (value + 0.55 * normal(random))).toFixed(4))),
      metadata: {
        kind,
        maker: MAKERS[Math.floor(random() * MAKERS.length)],
        colour: COLOURS[Math.floor(random() * COLOURS.length)],
        price: Math.round(4 + 90 * random() ** 2),
        in_stock: random() < 0.9,
      },
    }));
  });
}

/** The calls that make the shop, in their order. @returns {{title: string, call: import("./api.js").Call}[]} */
export function calls() {
  const bandit = {
    catalogue: CATALOGUE,
    policy: "softmax",
    temperature: "auto",
    filter: { in_stock: true },
    context: { fields: [{ name: "device", kind: "category", values: ["mobile", "desktop"] }] },
    interactions: 2,
    holdout: { share: 0.2, serve: "random" },
    log: { keep_s: 604_800 },
    reward: { min: 0, max: 1 },
  };
  return [
    { title: "a catalogue", call: { method: "PUT", path: `/v1/catalogues/${CATALOGUE}`, body: { dim: DIM } } },
    { title: "its 240 arms", call: { method: "PUT", path: `/v1/catalogues/${CATALOGUE}/arms`, body: { arms: articles() } } },
    { title: "a bandit", call: { method: "PUT", path: `/v1/bandits/${BANDIT}`, body: bandit } },
  ];
}

/** Visitors look at one article each and click on what they like; the learner has every reward when this is done. @param {number} visitors @param {(done: number) => void} told @param {AbortSignal} [signal] */
export async function visit(visitors, told, signal) {
  const random = numbers(Date.now());
  const features = new Map(articles().map((arm) => [arm.id, arm.features]));
  const liking = Array.from({ length: DIM }, (_, place) => [0.9, -0.7, 0.6, 0.5, -0.4, 0.3, 0.2, -0.1][place]);
  const each = 25;
  for (let done = 0; done < visitors; done += each) {
    const requests = Array.from({ length: Math.min(each, visitors - done) }, () => ({ context: { device: random() < 0.6 ? "mobile" : "desktop" } }));
    const { results } = await send({ method: "POST", path: `/v1/bandits/${BANDIT}/choose/batch`, body: { requests } }, signal);
    const rewards = results.map((/** @type {any} */ choice, /** @type {number} */ place) => {
      const arm = features.get(choice.arms[0].id) ?? liking;
      const taste = arm.reduce((sum, value, at) => sum + value * liking[at], 0);
      const bonus = requests[place].context.device === "mobile" ? arm[0] : -arm[0];
      return { decision: choice.decision, value: random() < 1 / (1 + Math.exp(1 - 2.2 * taste - 0.6 * bonus)) ? 1 : 0 };
    });
    await send({ method: "POST", path: "/v1/rewards?wait=applied", body: { rewards } }, signal);
    told(Math.min(visitors, done + each));
  }
}
