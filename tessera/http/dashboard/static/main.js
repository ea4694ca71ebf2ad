// The page put together: one stream of events, one model, and the sections that draw it.

import { setToken, token } from "./api.js";
import { Charts } from "./charts.js";
import { byId, setText } from "./dom.js";
import { clock, duration } from "./format.js";
import { Generations } from "./generations.js";
import { Health } from "./health.js";
import { Model } from "./model.js";
import { Queries } from "./queries.js";
import { Search } from "./search.js";
import { Sources } from "./sources.js";
import { Stream } from "./stream.js";

const STALE_S = 15; // a status is read every second: one as old as this is not how things stand

const model = new Model();
const health = new Health();
const sources = new Sources(model);
const generations = new Generations(model);
const queries = new Queries();
const charts = new Charts(model);
new Search(model);

let link = { kind: "connecting" };
let trouble = null; // the service answers, and cannot read the index
let lastAt = null; // when the last event came
let statusAt = null; // when the status was last known to be true
let lostAt = null;
let due = false;

const stream = new Stream(
  (state) => {
    if (state.kind === "live") lostAt = null;
    else if (state.kind === "lost") lostAt ??= lastAt ?? Date.now();
    if (state.kind === "refused") refused(state.why);
    if (state.kind === "limited") account("reader"); // may search, and see no counts
    if (state.kind === "connecting" && link.kind === "lost") return; // the banner stays while it is tried again
    link = state;
    drawLink();
  },
  (name, value) => {
    lastAt = Date.now();
    if (name === "hello") hello(value);
    if (name === "trouble") trouble = value;
    if (name === "status") trouble = null;
    if (name === "status" || name === "change") statusAt = lastAt;
    if (name === "heartbeat" && value.status_age_s != null) statusAt = lastAt - 1000 * value.status_age_s;
    model.take(name, value);
    if (!due) {
      due = true;
      requestAnimationFrame(draw);
    }
  },
);

function hello(value) {
  setText(byId("version"), `Tessera ${value.version}`);
  account(value.role);
}

function account(role) {
  byId("account").hidden = !token() && role === "operator";
  setText(byId("account"), token() ? `Sign out (${role})` : "Sign in");
}

function draw() {
  due = false;
  health.draw(model, trouble, Date.now());
  sources.draw();
  generations.draw();
  queries.draw(model);
  drawLink();
}

function problem() {
  if (link.kind === "lost") return ["lost", `Connection lost since ${clock(lostAt)}: ${link.why}. ${model.status ? "What you see is from then." : ""}`];
  if (link.kind === "limited") return ["limited", "This token may search. How the index stands is shown to those with the role monitor or operator."];
  if (link.kind === "refused") return ["refused", `Not signed in: ${link.why}`];
  if (trouble) return ["trouble", `The index cannot be read since ${clock(trouble.since_ms)}: ${trouble.message}. ${model.status ? "What you see is from before." : ""}`];
  if (link.kind === "live" && statusAt && Date.now() - statusAt > 1000 * STALE_S) return ["stale", `The status is from ${clock(statusAt)}: the service reads it no faster just now.`];
  return null;
}

function drawLink() {
  const found = problem();
  const state = found?.[0] ?? (link.kind === "live" && !model.status ? "loading" : link.kind === "connecting" ? "loading" : link.kind);
  if (document.body.dataset.link !== state) document.body.dataset.link = state;
  byId("banner").hidden = !found;
  setText(byId("banner-text"), found ? found[1] : "");
  const wait_s = link.kind === "lost" ? Math.max(0, (link.retryAt - Date.now()) / 1000) : 0;
  setText(byId("banner-count"), link.kind === "lost" ? `${duration((Date.now() - lostAt) / 1000)} ago · ${wait_s > 0 ? `trying again in ${Math.ceil(wait_s)} s` : "trying now…"}` : "");
  byId("retry").hidden = !found || !["lost", "refused"].includes(found[0]);
  setText(byId("retry"), link.kind === "refused" ? "Sign in" : "Try now");
  const words = { loading: "Connecting…", live: "Live", lost: "Connection lost", refused: "Not signed in", limited: "Search only", trouble: "Index not readable", stale: "Stale", paused: "Paused while hidden" };
  setText(byId("link-text"), words[state]);
  document.title = `${{ lost: "(lost) ", trouble: "(!) ", stale: "(stale) " }[state] ?? ""}Tessera`;
}

function refused(why) {
  setText(byId("sign-in-why"), "The service asks for a token.");
  const wrong = token() != null;
  if (wrong) setToken(null);
  signIn(wrong ? why : "");
}

function signIn(failed) {
  byId("sign-in-failed").hidden = !failed;
  setText(byId("sign-in-failed"), failed);
  byId("token").value = "";
  if (!byId("sign-in").open) byId("sign-in").showModal();
  byId("token").focus();
}

byId("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("sign-in").close();
  stream.start();
});

byId("account").addEventListener("click", () => {
  if (!token()) {
    setText(byId("sign-in-why"), "With the operator token you can pause, resume, cut over and roll back.");
    signIn("");
    return;
  }
  setToken(null);
  location.reload(); // what was seen with the token goes too
});

byId("retry").addEventListener("click", () => (link.kind === "refused" ? signIn("") : stream.start()));

for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}

byId("verdict-reasons").addEventListener("click", (event) => {
  if (event.target.closest('a[href="#shards"]')) byId("shards").open = true;
});

setInterval(() => {
  const now_ms = Date.now();
  model.sample(now_ms, link.kind === "live" && !trouble);
  if (!document.hidden) charts.draw();
  draw();
}, 1000);

stream.start();
