// Requests to the server. Every failure becomes an Error with the server's own words, and its status if it answered.

const HEADERS = { "content-type": "application/json" };
const CHUNK = 100; // texts of a request
const CHARACTERS = 300_000; // of all texts of a request of several
const MOST = 100_000; // characters of a text, as in answers.py

// The page may lie in a folder of its server.
async function ask(path, options = {}) {
  const answer = await fetch(`.${path}`, options).catch((problem) => {
    throw problem.name === "AbortError" ? problem : new Error("the server does not answer");
  });
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({})); // else the status says it
  throw Object.assign(new Error(error || answer.statusText || `the server answered ${answer.status}`), { status: answer.status });
}

export const get = (path) => ask(path);

export const post = (path, body, signal) => ask(path, { method: "POST", headers: HEADERS, body: JSON.stringify(body), signal });

// The rows of a workbook, which the server reads as every command does.
export async function rowsOfWorkbook(name, body) {
  const headers = { "content-type": "application/octet-stream" };
  return (await (await ask(`/api/table?name=${encodeURIComponent(name)}`, { method: "POST", headers, body })).json()).rows;
}

// The same as post, asked again every second as long as the server says that it is not ready yet (503); say(words) tells why.
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

// Calls tell(answer) for the predictions of each part of many inputs, in order.
export async function predict(model, inputs, settings, signal, tell) {
  const size = (one) => [].concat(one).reduce((sum, text) => sum + text.length, 0);
  const long = inputs.findIndex((one) => [].concat(one).some((text) => text.length > MOST));
  if (long >= 0) {
    const [number, most] = [size(inputs[long]), MOST].map((count) => count.toLocaleString("en"));
    throw new Error(`text ${long + 1} has ${number} characters, and the server reads at most ${most} of a text; shorten it, or split it`);
  }
  for (let start = 0; start < inputs.length; ) {
    let end = start;
    for (let rest = CHARACTERS; end < inputs.length && end < start + CHUNK && (end === start || rest >= size(inputs[end])); end++) {
      rest -= size(inputs[end]);
    }
    const answer = await post("/api/predict", { model, inputs: inputs.slice(start, end), ...settings }, signal);
    tell(await answer.json());
    start = end;
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
