export const title = "queries"; export function show() {}
