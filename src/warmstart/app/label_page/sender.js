// Sends one request at a time. If the server is gone, the request is kept and sent again until the server is back: no answer is lost.

import { post } from "./api.js";

const PAUSE = 1000; // milliseconds between two tries
const GONE = new Set([502, 503, 504]);

export class Sender {
  // away(true) when the server has gone, away(false) when it is back.
  constructor(away) {
    this.away = away;
    this.busy = false;
    addEventListener("beforeunload", (event) => {
      if (this.busy) event.preventDefault(); // an answer has not been stored yet
    });
  }

  // The answer to a request; null at once if another one is under way.
  async send(path, body) {
    if (this.busy) return null;
    this.busy = true;
    let gone = false;
    try {
      for (;;) {
        try {
          return await (await post(path, body)).json();
        } catch (problem) {
          if (problem.status !== undefined && !GONE.has(problem.status)) throw problem;
          if (!gone) this.away((gone = true));
          await new Promise((resolve) => setTimeout(resolve, PAUSE));
        }
      }
    } finally {
      this.busy = false;
      if (gone) this.away(false);
    }
  }
}
