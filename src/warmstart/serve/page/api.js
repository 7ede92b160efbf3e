// Requests to the server. Every failure becomes an Error with the server's own words.

import { inputOf } from "./elements.js";

const HEADERS = { "content-type": "application/json" };
const CHUNK = 100; // texts of a request

async function checked(answer) {
  if (answer.ok) return answer;
  let words = answer.statusText;
  try {
    words = (await answer.json()).error;
  } catch {
    // no JSON: the status says it
  }
  throw Object.assign(new Error(words || `the server answered ${answer.status}`), { status: answer.status });
}

export async function get(path) {
  return checked(await fetch(path));
}

export async function post(path, body, signal) {
  const answer = await fetch(path, { method: "POST", headers: HEADERS, body: JSON.stringify(body), signal });
  return checked(answer);
}

// The same, asked again every second as long as the server says that it is not ready yet (503); say(words) tells why.
export async function postWhenReady(path, body, say) {
  for (;;) {
    try {
      return await post(path, body);
    } catch (problem) {
      if (problem.status !== 503) throw problem;
      say(problem.message);
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

// Calls tell(answer, texts, done) for the predictions of each part of many texts, in order; option: that of the model.
export async function predict(option, texts, settings, signal, tell) {
  for (let start = 0; start < texts.length; start += CHUNK) {
    const part = texts.slice(start, start + CHUNK);
    const inputs = part.map((text) => inputOf(text, option.dataset.task));
    const answer = await post("/api/predict", { model: option.value, inputs, ...settings }, signal);
    tell(await answer.json(), part, start + part.length);
  }
}

// Calls tell(kind, value) for every server-sent event of a request.
export async function stream(path, body, signal, tell) {
  const reader = (await post(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const [kind, data] = event.split("\n");
      tell(kind.slice("event: ".length), JSON.parse(data.slice("data: ".length)));
    }
  }
}
