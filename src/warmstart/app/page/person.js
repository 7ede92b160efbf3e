// The person who labels in this browser, on each page: the name beside their answers, and a number that tells this browser from
// another one with the same name.

const [NAME, BROWSER, SAME] = ["warmstart-person", "warmstart-browser", "warmstart-same-person"];

export const nameKept = () => localStorage.getItem(NAME);

export const keepName = (name) => localStorage.setItem(NAME, name);

// The person of this name in another browser is this one.
export const keepSame = (name) => localStorage.setItem(SAME, name);

// The fields of a request that say who asks.
export function personFields(name) {
  if (!localStorage.getItem(BROWSER)) localStorage.setItem(BROWSER, crypto.getRandomValues(new Uint32Array(4)).join("-"));
  return { person: name, browser: localStorage.getItem(BROWSER), same: localStorage.getItem(SAME) === name };
}
