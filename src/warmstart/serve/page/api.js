// Requests to the server. Every failure becomes an Error with the server's own words.

const HEADERS = { "content-type": "application/json" };

async function checked(answer) {
  if (answer.ok) return answer;
  let words = answer.statusText;
  try {
    words = (await answer.json()).error;
  } catch {
    // no JSON: the status says it
  }
  throw new Error(words || `the server answered ${answer.status}`);
}

export async function get(path) {
  return checked(await fetch(path));
}

export async function post(path, body, signal) {
  const answer = await fetch(path, { method: "POST", headers: HEADERS, body: JSON.stringify(body), signal });
  return checked(answer);
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
