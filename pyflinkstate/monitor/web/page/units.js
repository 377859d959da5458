// Numbers, sizes and times as people read them. What is not known is a dash.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const some = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const isMissing = (value) => value === null || value === undefined;

export const number = (value) => (isMissing(value) ? "–" : whole.format(value));
export const decimal = (value) => (isMissing(value) ? "–" : some.format(value));
// With few digits, for axes and for what changes all the time: 3,282 or 1.2 M.
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const compact = (value) => (isMissing(value) ? "–"
  : Math.abs(value) < 100 ? some.format(value) : Math.abs(value) < 10_000 ? whole.format(value) : SHORT.format(value));
export const rate = (value) => (isMissing(value) ? "–" : compact(value) + "/s");
// Shares are told in ms of each second.
export const share = (ms) => (isMissing(ms) ? "–" : some.format(ms / 10) + " %");
export const short = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

export function bytes(size) {
  if (isMissing(size)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return (unit ? some.format(size) : whole.format(size)) + " " + units[unit];
}

export function duration(ms) {
  if (isMissing(ms)) return "–";
  if (ms < 1000) return some.format(ms) + " ms";
  const seconds = ms / 1000;
  if (seconds < 60) return some.format(seconds) + " s";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([length]) => seconds >= length);
  const [length, name] = parts[Math.min(first + 1, 3)];
  const rest = Math.floor((seconds % parts[first][0]) / length);
  return Math.floor(seconds / parts[first][0]) + " " + parts[first][1] + (first < 3 && rest ? ` ${rest} ${name}` : "");
}

export function time(ms) {
  if (isMissing(ms)) return "–";
  const moment = new Date(ms);
  return isNaN(moment) ? String(ms) : moment.toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC");
}

// The place of the greatest value, or -1.
export function most(values) {
  let place = -1;
  values.forEach((value, n) => { if (value !== null && (place < 0 || value > values[place])) place = n; });
  return place;
}

export const spread = (values, unit) => values.length
  ? `${values.length} parts, from ${unit(Math.min(...values))} to ${unit(Math.max(...values))}` : "nothing";
