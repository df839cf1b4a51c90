export const title = "whatif"; export function show() {}
