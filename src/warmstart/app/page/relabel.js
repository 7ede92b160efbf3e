// "Wrong? Label it" beside each prediction: the label that somebody chooses is an answer in the project that this server has open.

import { get, post } from "./api.js";
import { offerBeside } from "./classify.js";
import { make } from "./elements.js";
import { keepName, nameKept, personFields } from "./person.js";

const at = (path) => `/${document.getElementById("pages").dataset.labels}api/${path}`;

offerBeside((one, option) => {
  if (option.dataset.task !== "classification" || typeof one.input !== "string") return null;
  const button = make("button", { type: "button", className: "small", textContent: "Wrong? Label it" });
  const place = make("div", { className: "relabel" }, button);
  button.addEventListener("click", async () => {
    button.disabled = true;
    const note = make("p", { className: "quiet", role: "status" });
    place.append(note);
    try {
      const { labels } = await (await get(at("labels"))).json();
      offerLabels(place, note, one.input, labels);
      button.remove();
    } catch (problem) {
      note.textContent = problem.message;
      button.disabled = false;
    }
  });
  return place;
});

// A name, if this browser knows none, and a button for each label; then the sentence that the server says.
function offerLabels(place, note, text, labels) {
  const known = nameKept();
  const name = make("input", { maxLength: 100, dir: "auto", autocomplete: "nickname", required: true, value: known ?? "" });
  const who = make("label", { textContent: "Your name, as it stands beside your answers " }, name);
  const choose = async (value) => {
    const person = name.value.trim();
    note.textContent = "";
    if (!person) {
      note.textContent = "Give your name first: it stands beside your answers.";
      name.focus();
      return;
    }
    try {
      const body = { ...personFields(person), text, value };
      note.textContent = (await (await post(at("tried"), body)).json()).sentence;
      keepName(person);
      choices.remove();
      who.remove();
    } catch (problem) {
      note.textContent = problem.message;
      who.hidden = false;
    }
  };
  const choices = make("div", { className: "row", role: "group", ariaLabel: "The right label" });
  choices.append(...labels.map(({ id, name: words }) => {
    const button = make("button", { type: "button", className: "small", dir: "auto", textContent: words });
    button.addEventListener("click", () => choose(id));
    return button;
  }));
  who.hidden = Boolean(known);
  note.before(who, choices);
  (known ? choices.firstElementChild : name)?.focus();
}
