// Lines over time, drawn by uPlot.

import { byId } from "./dom.js";
import { decimal } from "./format.js";

const HEIGHT = 120;
const DESCRIBE_MS = 15000;

const LEAST_S = 120; // a minute's points are not stretched over the whole width

// The times shown; uPlot tells null where there is no point yet.
const window_s = (plot, first, last) => {
  const end = last ?? Date.now() / 1000;
  return [Math.min(first ?? end, end - LEAST_S), end];
};

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Chart {
  constructor(id, label, series) {
    this.node = byId(id);
    this.label = label;
    this.series = series;
    this.described = 0;
    new ResizeObserver(() => this.resize()).observe(this.node);
  }

  build(data) {
    this.plot?.destroy();
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const options = {
      width: this.node.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      select: { show: false },
      scales: { x: { range: window_s }, y: { range: (plot, low, high) => [0, Math.max(1, (high ?? 0) * 1.15)] } },
      axes: [
        { ...axis, size: 22, space: 70, values: (plot, splits) => splits.map((t) => new Date(1000 * t).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" })) },
        { ...axis, size: 46, space: 34, values: (plot, splits) => splits.map(tick) },
      ],
      series: [{}, ...this.series.map((name, index) => ({ stroke: colour(`--chart-${index + 1}`), width: 2, fill: index ? undefined : colour("--chart-fill"), points: { show: false } }))],
    };
    this.plot = new window.uPlot(options, data, this.node);
  }

  draw(data) {
    if (!this.node.clientWidth || !window.uPlot) return;
    if (this.plot) this.plot.setData(data);
    else this.build(data);
    this.describe(data);
  }

  // For those who do not see it: the last and the greatest value, now and then.
  describe(data) {
    if (Date.now() - this.described < DESCRIBE_MS) return;
    this.described = Date.now();
    const parts = this.series.map((name, index) => {
      const known = data[index + 1].filter((value) => value != null);
      return known.length ? `${name} ${decimal(known.at(-1))} now, ${decimal(Math.max(...known))} at most` : `${name} not known`;
    });
    this.node.setAttribute("aria-label", `${this.label}: ${parts.join("; ")}`);
  }

  resize() {
    if (this.plot && this.node.clientWidth) this.plot.setSize({ width: this.node.clientWidth, height: HEIGHT });
  }
}

const tick = (value) => (value >= 10000 ? `${value / 1000}k` : String(value));

export class Charts {
  constructor(model) {
    this.model = model;
    this.all = [
      [new Chart("chart-lag", "Lag in records", ["lag"]), ["lag"]],
      [new Chart("chart-applied", "Records applied per second", ["applied"]), ["appliedRate"]],
      [new Chart("chart-rate", "Searches per second", ["searches"]), ["rate"]],
      [new Chart("chart-latency", "Latency of searches in milliseconds", ["median", "95th percentile"]), ["median", "slow"]],
    ];
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  draw() {
    for (const [chart, names] of this.all) chart.draw(this.model.series(...names));
  }

  rebuild() {
    for (const [chart, names] of this.all) if (chart.plot) chart.build(this.model.series(...names));
  }
}
