// Loads a module on demand: a module that the wasm's bindings name is loaded by every page.
export const load = (address) => import(address);
