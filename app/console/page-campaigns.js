export const title = "campaigns"; export function show() {}
