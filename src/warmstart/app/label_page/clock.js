// How long a text was looked at: time in which the page is hidden does not count.

export class Clock {
  constructor() {
    this.begin();
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.seconds = this.read();
      this.since = performance.now();
    });
  }

  begin() {
    this.seconds = 0;
    this.since = performance.now();
  }

  read() {
    return this.seconds + (document.hidden ? 0 : (performance.now() - this.since) / 1000);
  }
}
