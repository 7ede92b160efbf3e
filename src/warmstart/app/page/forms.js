// What the forms share: Ctrl+Enter sends, a reload of the tab keeps what was written, another panel begins with it, and the address
// of a result leads there: #classify?t=a+text&m=model, or to a tab of it: #why?t=a+text.

const LONGEST = 1_000; // characters of a text in an address
const areaOf = (form) => form.querySelector("textarea");
const send = (form) => form.querySelector("[type=submit]").disabled || form.requestSubmit();
let waiting; // of all forms the last that was to be sent
let last = "";

// A panel that is busy, also one that still loads, is waited for: what was asked is not lost.
export function sendWhenFree(form) {
  clearTimeout(waiting);
  if (send(form)) waiting = setTimeout(() => sendWhenFree(form), 50);
}

// Storage may be forbidden, or full.
function kept(name, value) {
  try {
    if (value === undefined) return sessionStorage.getItem(`warmstart ${name}`) ?? "";
    sessionStorage.setItem(`warmstart ${name}`, value);
  } catch {
    // then nothing is kept
  }
  return "";
}

export function share(form) {
  const { value, disabled } = areaOf(form);
  const { model } = form.elements;
  const panel = form.dataset.tab ?? form.parentElement.id;
  const said = new URLSearchParams({ t: value });
  if (model?.length > 1) said.set("m", model.value);
  history.replaceState(null, "", disabled || !value || value.length > LONGEST ? `#${panel}` : `#${panel}?${said}`);
}

function follow() {
  const [name, said] = location.hash.slice(1).split("?");
  const tab = document.getElementById(`tab-${name}`);
  const panel = tab?.closest("section") ?? document.getElementById(name);
  const form = panel?.querySelector("form");
  if (!form || !areaOf(form)) return;
  const { t, m } = Object.fromEntries(new URLSearchParams(said));
  const select = form.elements.model;
  if ([...(select?.options ?? [])].some((one) => one.value === m)) {
    select.value = m;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  }
  tab?.dispatchEvent(new Event("show"));
  if (!t && !areaOf(form).value) areaOf(form).value = last;
  if (!t) return;
  areaOf(form).value = t;
  areaOf(form).dispatchEvent(new InputEvent("input", { inputType: "insertFromPaste", bubbles: true }));
  form.scrollIntoView({ block: "nearest" });
  sendWhenFree(form);
}

// Until then the page is inert: a form would be sent as forms without scripts are, and lose its text.
export function setUpForms() {
  document.getElementById("main").inert = false;
  for (const form of document.querySelectorAll("section[id] > form")) {
    const area = areaOf(form);
    const panel = form.parentElement.id;
    if (!area) continue;
    area.value ||= kept(panel);
    area.addEventListener("input", () => kept(panel, (last = area.value)));
    area.addEventListener("keydown", ({ key, ctrlKey, metaKey, repeat }) => {
      if (key === "Enter" && (ctrlKey || metaKey) && !repeat) sendWhenFree(form);
    });
    form.addEventListener("submit", () => share(form));
  }
  addEventListener("hashchange", follow);
  follow();
}
