// Rate and latency of searches, and whatever else the service counts of them.

import { byId, tile } from "./dom.js";
import { UNKNOWN, decimal, number, percent } from "./format.js";
import { quantile_ms } from "./model.js";

const AVERAGE_S = 10;

export class Queries {
  draw(model) {
    const list = byId("query-tiles");
    const now = model.queries;
    if (!now) return;
    const point = model.points.at(-1);
    const base = model.points.find((each) => each.queries && each.t >= point.t - AVERAGE_S);
    const rate = base && point.t > base.t ? (now.count - base.queries.count) / (point.t - base.t) : null;
    tile(list, "rate", "Searches")(rate == null ? UNKNOWN : `${decimal(rate)} /s`, `over ${AVERAGE_S} s`);
    tile(list, "median", "Median latency")(ms(point?.median ?? null), point?.median == null ? "no search in the last 30 s" : "of the last 30 s");
    tile(list, "slow", "95th percentile")(ms(point?.slow ?? null), `${ms(quantile_ms(null, now, 0.95))} since the start`);
    tile(list, "total", "Searches so far")(number(now.count), releases(now.releases));
    this.counted(list, now.counters);
  }

  counted(list, { tessera_searches_total: searches = {}, tessera_search_refusals_total: refusals = {}, tessera_quotes_total: quotes = {}, tessera_outcomes_total: outcomes = {} }) {
    const all = sum(searches);
    tile(list, "empty", "Without a hit")(all ? percent((searches.empty ?? 0) / all) : UNKNOWN, `${number(searches.failed ?? 0)} failed`, searches.failed ? "warn" : "");
    tile(list, "refusals", "Refused")(number(sum(refusals)), split(refusals));
    tile(list, "outcomes", "Supported answers")(share(outcomes), split(outcomes));
    tile(list, "quotes", "Supported quotes")(share(quotes), split(quotes));
  }
}

const ms = (value) => (value == null ? UNKNOWN : `${decimal(value)} ms`);

const sum = (counts) => Object.values(counts).reduce((total, count) => total + count, 0);

const share = (counts) => (sum(counts) ? percent((counts.supported ?? 0) / sum(counts)) : UNKNOWN);

const split = (counts) => Object.entries(counts).map(([name, count]) => `${number(count)} ${name}`).join(", ") || "none so far";

function releases(counts) {
  const named = Object.entries(counts).filter(([name]) => name);
  return named.length ? named.map(([name, count]) => `${name} ${number(count)}`).join(", ") : "since this process began";
}
