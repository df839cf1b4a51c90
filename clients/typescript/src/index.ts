// const client = new Client("https://recommend.example", { key });
// const choice = await client.choose("home", { key: "user-42" });
// await client.reward(choice.decision);

export { Client } from "./client.ts";
export * from "./errors.ts";
export { visitorPass } from "./passes.ts";
export { RewardSender } from "./sender.ts";
export type * from "./types.ts";
