// What the server answers, answered by the model in this page: the panels are those of the server and notice no difference.

import { Backbone } from "./backbone.js";
import { Generator } from "./generate.js";
import { Predictor } from "./predict.js";
import { Stack } from "./stack.js";
import { Tokenizer } from "./tokenizer.js";
import { Weights, inflated } from "./weights.js";

const AT_ONCE = 50; // milliseconds of computing after which the page may show what there is

const textOf = (id) => document.getElementById(id).textContent;
const pause = () => new Promise((resolve) => setTimeout(resolve, 0));
const facts = JSON.parse(textOf("facts"));

async function load() {
  try {
    const weights = new Weights(facts.weights, await inflated(textOf("weights")));
    document.getElementById("weights").remove();
    const tokenizers = Object.fromEntries(Object.entries(facts.tokenizers).map(([digest, spec]) => [digest, new Tokenizer(spec)]));
    const network = (made, settings, number) => {
      const own = weights.under(`networks.${number}.`);
      return new made(settings, tokenizers[settings.tokenizer], new Backbone(settings.backbone, own), own);
    };
    const { settings, networks, members, words } = facts;
    if (!members) return network(settings.labels.length ? Predictor : Generator, settings, 0);
    return new Stack(settings, members, networks.map((one, number) => network(Predictor, one, number)), weights, words);
  } catch (problem) {
    throw new Error(`the model in this page cannot be read (${problem.message}); this file is damaged, or this browser is too old`);
  }
}

export const ready = load();
ready.catch(() => {}); // whoever asks the model is told

export async function get(path) {
  const what = new URL(path, "page:/").pathname.split("/").at(-1);
  return { json: async () => facts.replies[what], text: async () => facts.replies[what] };
}

export async function post(path, body) {
  const predictor = await ready;
  const found = await predictor.erasure(body.text, body.target, pause);
  return { json: async () => found };
}

export const postWhenReady = post;

export async function rowsOfWorkbook(name) {
  throw new Error(`this page reads text and csv; save ${name} as csv, and choose that`);
}

// Calls tell(answer) for the predictions of a few inputs at a time, in order.
export async function predict(model, inputs, settings, signal, tell) {
  const predictor = await ready;
  const chosen = facts.replies.guarantees?.guarantees.find((one) => one.target_error === settings.target_error);
  for (let done = 0; done < inputs.length; ) {
    const until = performance.now() + AT_ONCE;
    const [predictions, unread] = [[], []];
    for (; done < inputs.length && performance.now() < until; done++) {
      predictions.push(predictor.predict(inputs[done], settings.top, chosen?.threshold));
      unread.push(predictor.encode(inputs[done]).unread);
    }
    tell({ predictions, unread, guarantee: chosen?.sentence });
    await pause();
    signal.throwIfAborted();
  }
}

// Calls tell(kind, value) for every token.
export async function stream(path, body, signal, tell) {
  const generator = await ready;
  await generator.write(body.prompt, body, async (kind, value) => {
    tell(kind, value);
    await pause();
    signal.throwIfAborted();
  });
}
