// Numbers and times for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const UNKNOWN = "–";

export const number = (value) => (value == null ? UNKNOWN : whole.format(value));

export const short = (value) => (value == null ? UNKNOWN : Math.abs(value) < 10000 ? whole.format(value) : compact.format(value));

export function decimal(value) {
  if (value == null) return UNKNOWN;
  return value !== 0 && value < 10 ? value.toFixed(1) : whole.format(value);
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit += 1) value /= 1000;
  return `${unit && value < 10 ? value.toFixed(1) : whole.format(value)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds == null) return UNKNOWN;
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export const moment = (ms) => `${new Date(ms).toLocaleDateString("en-CA")} ${new Date(ms).toLocaleTimeString("en-GB")}`;

export const percent = (share) => `${share > 0 && share < 1 ? Math.min(99, Math.max(1, Math.floor(100 * share))) : Math.round(100 * share)} %`;
