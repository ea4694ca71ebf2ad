// The top of the page: is it well, and if not, what is wrong and since when.

import { byId, el, keyed, setText, tile } from "./dom.js";
import { UNKNOWN, duration, number, plural, short } from "./format.js";

const BEHIND_S = 30; // shorter spells of lag are what a batch looks like

const NAMED = 4;

// What is wrong: [level, text, section], the worst first.
export function reasons(status, behindSince, now_ms) {
  const found = [];
  const { totals, broker } = status;
  if (broker.trouble) found.push(["bad", `Broker not reachable: ${broker.trouble}`, "health"]);
  if (!status.release) found.push(["bad", "Nothing is served yet: no worker has made a release. Start one with tessera worker", "generations"]);
  const unclaimed = status.shards.filter((shard) => !shard.claimed).length;
  if (unclaimed) found.push(["bad", `${plural(unclaimed, "shard")} without a worker so far`, "shards"]);
  if (totals.dead_letters) found.push(["warn", `${plural(totals.dead_letters, "dead letter")} waiting: tessera deadletter list`, "shards"]);
  const behind_s = behindSince == null ? 0 : (now_ms - behindSince) / 1000;
  if (behind_s >= BEHIND_S) found.push(["warn", `Behind for ${duration(behind_s)}, ${plural(totals.lag, "record")} to go`, "shards"]);
  const stuck = status.generations.filter((each) => each.progress && !each.serving && Object.keys(each.progress.notes).length);
  for (const each of stuck) found.push(["warn", `Generation ${each.generation} waits: ${Object.values(each.progress.notes)[0]}`, "generations"]);
  return found;
}

// What goes on, though nothing is wrong.
function news(status) {
  const found = [];
  for (const each of status.generations) {
    const { progress } = each;
    if (each.serving || !progress || !["building", "ready", "gated"].includes(each.state)) continue;
    const words = each.state === "gated" ? "may be cut over to" : each.state === "ready" ? "is filled and not verified yet" : each.paused ? "is paused" : "is being filled";
    found.push(["info", `Generation ${each.generation} ${words}`, "generations"]);
  }
  const losing = Object.keys(status.sources).filter((name) => status.sources[name].uncovered || status.sources[name].parse_failures);
  if (losing.length) {
    const named = losing.length > NAMED ? `${losing.slice(0, NAMED).join(", ")} and ${number(losing.length - NAMED)} more` : losing.join(", ");
    found.push(["info", `${plural(losing.length, "source")} ${losing.length === 1 ? "loses" : "lose"} evidence: ${named}`, "sources"]);
  }
  return found;
}

const WORDS = { bad: "Needs attention now", warn: "Needs a look", info: "Healthy" };

export class Health {
  draw(model, trouble, now_ms) {
    const { status } = model;
    if (!status) return;
    this.verdict(status, model.behindSince, trouble, now_ms);
    this.tiles(status, model.behindSince, trouble, now_ms);
    this.shards(status.shards);
  }

  verdict(status, behindSince, trouble, now_ms) {
    const found = [...reasons(status, behindSince, now_ms), ...news(status)];
    if (trouble) found.unshift(["bad", `The index cannot be read: ${trouble.message}`, "health"]);
    const level = found[0]?.[0] ?? "good";
    byId("verdict").dataset.level = level === "info" ? "good" : level;
    setText(byId("verdict-word"), WORDS[found.some(([each]) => each === "bad") ? "bad" : level] ?? "Healthy");
    keyed(
      byId("verdict-reasons"),
      found.map(([each, text, section]) => `${each}|${section}|${text.replace(/[\d,]+( h| min| s)?/g, "")}`),
      () => el("li", {}, el("a")),
      (node, key) => {
        const [each, text, section] = found.find(([l, t, s]) => `${l}|${s}|${t.replace(/[\d,]+( h| min| s)?/g, "")}` === key);
        node.dataset.level = each;
        node.firstChild.setAttribute("href", `#${section}`);
        setText(node.firstChild, text);
      },
    );
  }

  tiles(status, behindSince, trouble, now_ms) {
    const list = byId("health-tiles");
    const { totals, broker, redis } = status;
    const behind_s = behindSince == null ? 0 : (now_ms - behindSince) / 1000;
    const late = behind_s >= BEHIND_S;
    tile(list, "lag", "Lag")(short(totals.lag), totals.lag == null ? "the broker tells no ends" : "records not applied yet", late ? "warn" : "");
    tile(list, "freshness", "Freshness")(
      totals.lag == null ? UNKNOWN : behindSince == null ? "Up to date" : `${duration(behind_s)} behind`,
      totals.lag == null ? "not known without the broker" : behindSince == null ? "all that was published is searchable" : "at least, as this page saw it",
      late ? "warn" : "",
    );
    tile(list, "dead", "Dead letters")(short(totals.dead_letters), "neither replayed nor discarded", totals.dead_letters ? "warn" : "");
    tile(list, "release", "Serving")(
      status.release ? `${status.release} · ${status.generation}` : "Nothing",
      status.release ? `contexts ${status.assembly}` : "no release yet",
      status.release ? "" : "bad",
    );
    tile(list, "broker", "Broker")(broker.trouble ? "Not reachable" : "Reachable", broker.address, broker.trouble ? "bad" : "");
    tile(list, "redis", "Redis")(trouble ? "Not reachable" : "Reachable", redis.address.replace(/^rediss?:\/\//, ""), trouble ? "bad" : "");
    tile(list, "documents", "Documents")(short(totals.documents), `in ${plural(Object.keys(status.sources).length, "source")}`);
    tile(list, "chunks", "Chunks")(short(totals.chunks), `${plural(totals.uncovered, "uncovered range")}`);
  }

  shards(shards) {
    setText(byId("shards-count"), shards.length);
    const byName = new Map(shards.map((shard) => [shard.shard, shard]));
    keyed(
      byId("shard-rows"),
      [...byName.keys()],
      (name) => el("tr", {}, el("th", { scope: "row" }, name), ...Array.from({ length: 7 }, () => el("td", { class: "number" }))),
      (row, name) => {
        const shard = byName.get(name);
        const values = [shard.lag, shard.claimed ? shard.applied : null, shard.end, shard.records, shard.duplicates, shard.dead_letters, shard.epoch];
        values.forEach((value, index) => setText(row.cells[index + 1], number(value)));
        row.cells[6].dataset.level = shard.dead_letters ? "warn" : "";
      },
    );
  }
}
