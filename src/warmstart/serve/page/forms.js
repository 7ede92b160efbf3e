// What the forms share: Ctrl+Enter sends, a reload of the tab keeps what was written, another panel begins with it, and the address
// of a result leads there: #classify?t=a+text&m=model.

const LONGEST = 1_000; // characters of a text in an address
const areaOf = (form) => form.querySelector("textarea");
const send = (form) => form.querySelector("[type=submit]").disabled || form.requestSubmit();
const sendWhenFree = (form) => send(form) && setTimeout(() => sendWhenFree(form), 50);
let last = "";

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

function share(form, panel) {
  const { value, disabled } = areaOf(form);
  const { model } = form.elements;
  const said = new URLSearchParams({ t: value, ...(model?.length > 1 ? { m: model.value } : {}) });
  history.replaceState(null, "", disabled || !value || value.length > LONGEST ? `#${panel}` : `#${panel}?${said}`);
}

function follow() {
  const [panel, said] = location.hash.slice(1).split("?");
  unfold(document.getElementById(panel));
  const form = document.getElementById(panel)?.querySelector("form");
  if (!form || !areaOf(form)) return;
  const { t, m } = Object.fromEntries(new URLSearchParams(said));
  if (!t && !areaOf(form).value) areaOf(form).value = last;
  if (!t) return;
  const { model } = form.elements;
  if (m && model && [...model.options].some((one) => one.value === m)) {
    model.value = m;
    model.dispatchEvent(new Event("change"));
  }
  areaOf(form).value = t;
  areaOf(form).dispatchEvent(new InputEvent("input", { inputType: "insertFromPaste" }));
  form.scrollIntoView({ block: "nearest" });
  sendWhenFree(form);
}

// What an address names is not left folded.
function unfold(target) {
  const folded = target?.closest("details");
  if (!folded || folded.open) return;
  folded.open = true;
  target.scrollIntoView({ block: "start" });
}

export function setUpForms() {
  for (const form of document.querySelectorAll("section[id] > form")) {
    const area = areaOf(form);
    const panel = form.parentElement.id;
    if (!area) continue;
    area.value ||= kept(panel);
    area.addEventListener("input", () => kept(panel, (last = area.value)));
    area.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && send(form));
    form.addEventListener("submit", () => share(form, panel));
  }
  addEventListener("hashchange", follow);
  follow();
}
