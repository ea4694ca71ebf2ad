// What the page knows: the status, kept up to date by events, and a short history of it.

const KEPT_S = 600;
const LATENCY_S = 30;

export class Model {
  constructor() {
    this.status = null;
    this.queries = null;
    this.operator = false;
    this.behindSince = null;
    this.points = [];
  }

  take(name, value) {
    if (name === "hello") this.operator = value.operator;
    else if (name === "status") this.status = value;
    else if (name === "change" && this.status) this.change(value);
    else if (name === "queries") this.queries = value;
    const lag = this.status?.totals.lag;
    if (lag === 0) this.behindSince = null;
    else if (lag > 0) this.behindSince ??= Date.now();
  }

  change({ sources, sources_gone: gone, ...rest }) {
    Object.assign(this.status, rest);
    if (!sources) return;
    Object.assign(this.status.sources, sources);
    for (const name of gone) delete this.status.sources[name];
  }

  // Once a second: a point of the history. Where nothing is known there is a gap, not a line.
  sample(now_ms, live) {
    const known = live && this.status;
    const applied = known ? this.status.shards.reduce((sum, shard) => sum + shard.applied + 1, 0) : null;
    const point = { t: now_ms / 1000, lag: known ? this.status.totals.lag : null, applied, queries: known ? this.queries : null };
    const before = this.points.at(-1);
    const elapsed_s = before ? point.t - before.t : 0;
    point.appliedRate = rate(before?.applied, applied, elapsed_s);
    point.rate = rate(before?.queries?.count, point.queries?.count, elapsed_s);
    const base = this.points.find((each) => each.t >= point.t - LATENCY_S);
    [point.median, point.slow] = [0.5, 0.95].map((share) => quantile_ms(base?.queries, point.queries, share));
    this.points.push(point);
    while (this.points[0].t < point.t - KEPT_S) this.points.shift();
    return point;
  }

  series(...names) {
    return [this.points.map((point) => point.t), ...names.map((name) => this.points.map((point) => point[name]))];
  }
}

function rate(before, after, elapsed_s) {
  if (before == null || after == null || elapsed_s <= 0) return null;
  return Math.max(0, after - before) / elapsed_s;
}

// The quantile of what came between two histograms, as Prometheus' histogram_quantile has it.
export function quantile_ms(before, after, share) {
  if (!after) return null;
  const counts = Object.keys(after.buckets)
    .map((le) => [le === "+Inf" ? Infinity : Number(le), after.buckets[le] - (before?.buckets[le] ?? 0)])
    .sort((a, b) => a[0] - b[0]);
  const total = counts.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  let low = 0;
  let below = 0;
  for (const [bound, count] of counts) {
    if (count >= share * total) {
      if (bound === Infinity) return 1000 * low;
      return 1000 * (low + ((bound - low) * (share * total - below)) / (count - below));
    }
    [low, below] = [bound, count];
  }
  return 1000 * low;
}
