// The stream of events. Read with fetch, since EventSource cannot send a token.

import { Refused, request } from "./api.js";

const PAUSES_S = [1, 2, 4, 8, 15];
const HIDDEN_S = 30; // a hidden page gives its connection back: browsers share six of them between all tabs

// Calls `told(state)` with {kind: "connecting" | "live" | "lost" | "refused" | "limited" | "paused", why, retryAt, status}, and `event(name, value)`.
export class Stream {
  constructor(told, event) {
    this.told = told;
    this.event = event;
    this.silence_s = 15;
    this.failures = 0;
    document.addEventListener("visibilitychange", () => this.seen());
  }

  start() {
    this.stop();
    const run = new AbortController();
    this.run = run;
    this.told({ kind: "connecting" });
    this.read(run).then(
      () => this.again(run, "the service ended the stream"),
      (error) => this.failed(run, error),
    );
  }

  stop() {
    clearTimeout(this.timer);
    clearTimeout(this.watch);
    this.run?.abort();
    this.run = null;
  }

  seen() {
    clearTimeout(this.hiding);
    if (document.hidden) {
      this.hiding = setTimeout(() => {
        this.stop();
        this.told({ kind: "paused" });
      }, 1000 * HIDDEN_S);
    } else if (!this.run) {
      this.start();
    }
  }

  failed(run, error) {
    if (run !== this.run) return;
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
      this.stop();
      this.told({ kind: error.status === 403 ? "limited" : "refused", why: error.message });
    } else {
      this.again(run, run.why ?? (error instanceof Refused ? error.message : "the service does not answer"));
    }
  }

  again(run, why) {
    if (run !== this.run) return;
    clearTimeout(this.watch);
    const pause_s = PAUSES_S[Math.min(this.failures, PAUSES_S.length - 1)];
    this.failures += 1;
    this.told({ kind: "lost", why, retryAt: Date.now() + 1000 * pause_s });
    this.timer = setTimeout(() => this.start(), 1000 * pause_s);
  }

  // A connection that is dead says nothing: heartbeats tell it from one on which nothing happens.
  listen(run) {
    clearTimeout(this.watch);
    this.watch = setTimeout(() => {
      run.why = `nothing came for ${this.silence_s} s`;
      run.abort();
    }, 1000 * this.silence_s);
  }

  async read(run) {
    this.listen(run);
    const response = await request("/api/events", { signal: run.signal, headers: { Accept: "text/event-stream" } });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      this.listen(run);
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) this.take(run, block);
    }
  }

  take(run, block) {
    if (run !== this.run) return;
    let name = "message";
    let data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (!data) return;
    const value = JSON.parse(data);
    if (name === "hello") {
      this.failures = 0;
      this.silence_s = 3 * value.heartbeat_s;
      this.told({ kind: "live" });
    }
    this.event(name, value);
  }
}
