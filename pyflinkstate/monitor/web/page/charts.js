// Charts over time: lines or bars with axes and units. The pointer, or the arrow keys, show the values of one
// moment in all charts at once.

import { element } from "./elements.js";
import { bytes, compact, duration, number, rate } from "./units.js";

const WIDTH = 300, HEIGHT = 160, LEFT = 52, RIGHT = 6, TOP = 8, BOTTOM = 18;
const LEAST_BUCKETS = 12;
// A line breaks where as large a part of the chart has no values.
const GAP = 0.15;
const SPANS = { 1000: "5 minutes", 60000: "4 hours", 3600000: "14 days" };
const UNITS = {
  rate: { text: rate, factors: [1] },
  count: { text: number, factors: [1] },
  bytes: { text: bytes, factors: [1, 2 ** 10, 2 ** 20, 2 ** 30, 2 ** 40] },
  duration: { text: duration, factors: [1, 1000, 60e3, 3600e3, 86400e3] },
};

// Each chart: title, unit, its series with their names, and what to say if there are no values.
const CHARTS = [
  { id: "throughput", title: "Throughput", unit: "rate", series: [["records_in", "in"], ["records_out", "out"]],
    empty: "No records have been read." },
  { id: "latency", title: "Latency", unit: "duration", series: [["latency_ms", "longest"]],
    instead: { title: "Epoch time", series: [["epoch_ms", "longest"]] }, empty: "No epoch has run." },
  { id: "lag", title: "Watermark lag", unit: "duration", series: [["watermark_lag_ms", "greatest"]],
    empty: "The job has no watermarks." },
  { id: "memory", title: "Memory of the largest slot", unit: "bytes", series: [["memory_bytes", "used"]],
    empty: "No slot has told its memory." },
  { id: "checkpoint", title: "Checkpoint duration", unit: "duration", series: [["checkpoint_ms", "longest"]],
    empty: "No checkpoint is complete." },
  { id: "written", title: "Checkpoint size", unit: "bytes", series: [["checkpoint_bytes", "written"]],
    empty: "No checkpoint is complete." },
  { id: "state", title: "Size of state", unit: "bytes",
    series: [["full_write_bytes", "written in full"], ["restored_bytes", "a restore reads"]], empty: "No checkpoint is complete." },
  { id: "restarts", title: "Restarts", unit: "count", series: [["restarts", "restarts"]], isBars: true,
    empty: "The job has not restarted." },
];

// What is pointed at, in ms, and the step that the viewer has chosen; null for none.
let pointedMs = null, chosenStepMs = null;
let changed = () => {};

// --- what is shown ------------------------------------------------------------------------------------

// The chosen step; else seconds while the job runs, and later the finest step that has the whole history.
function stepOf(steps, isRunning) {
  const chosen = steps.find((step) => step.step_ms === chosenStepMs);
  if (chosen || isRunning) return chosen ?? steps[0];
  const firstMs = (step) => step.at[0] * step.step_ms;
  return steps.find((step) => firstMs(step) <= firstMs(steps[steps.length - 1]) + steps[steps.length - 1].step_ms)
    ?? steps[0];
}

// The range of a chart in ms: not longer than what happened, and not too short.
function rangeOf(step, isRunning) {
  const last = step.at.length ? step.at[step.at.length - 1] + 1 : 1;
  const end = isRunning ? Math.max(last, Math.floor(Date.now() / step.step_ms)) : last;
  const first = Math.max(step.at[0] ?? 0, end - step.buckets);
  return [Math.min(first, end - LEAST_BUCKETS) * step.step_ms, end * step.step_ms];
}

// The points [moment in ms, value] of a series. A sum becomes a rate by the part of its bucket that has passed.
function points(step, name, unit, heardMs) {
  const values = step.series[name] ?? [];
  return step.at.flatMap((place, n) => {
    const beginMs = place * step.step_ms, passedMs = Math.min(step.step_ms, heardMs - beginMs);
    if (values[n] === null || values[n] === undefined) return [];
    if (unit !== "rate") return [[beginMs, values[n]]];
    return passedMs < step.step_ms / 5 && n > 0 ? [] : [[beginMs, (values[n] * 1000) / Math.max(passedMs, 1)]];
  });
}

// A round number that is not below, in its unit: 1, 2, 2.5 or 5 times a power of ten.
function above(value, unit) {
  const factor = UNITS[unit].factors.filter((one) => one <= value).pop() ?? 1;
  const scaled = value / factor;
  if (!(scaled > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(scaled));
  const round = [1, 2, 2.5, 5, 10].find((one) => one * power >= scaled * 0.999) * power;
  return (unit === "count" ? Math.max(2, 2 * Math.ceil(round / 2)) : round) * factor;
}

function momentText(ms, stepMs) {
  const text = new Date(ms).toISOString();
  return stepMs === 1000 ? text.slice(11, 19) : stepMs === 60000 ? text.slice(11, 16) : text.slice(5, 13).replace("T", " ") + " h";
}

// --- drawing ------------------------------------------------------------------------------------------

export function charts(job, { steps }, isRunning, limits) {
  const step = stepOf(steps, isRunning), range = rangeOf(step, isRunning);
  return [
    element("p", { class: "spans", role: "group", "aria-label": "Time that the charts show" },
      steps.map(({ step_ms: ms }) => element("button", { type: "button", "data-span": ms,
        "aria-pressed": String(step.step_ms === ms) }, SPANS[ms] ?? duration(ms))),
      element("span", { class: "faint" }, pointedMs === null ? "Times are UTC" : `${momentText(pointedMs, step.step_ms)} UTC`)),
    element("div", { class: "charts" }, CHARTS.map((one) => {
      const isOther = one.instead && !step.series[one.series[0][0]];
      return chart({ ...one, ...(isOther ? one.instead : {}) }, step, range, job, isRunning, limits[one.id]);
    })),
  ];
}

function chart(one, step, range, job, isRunning, limit) {
  const heardMs = Math.max(job.heard_ms ?? 0, isRunning ? 0 : range[1]);
  const lines = one.series.map(([name, text]) => ({ text, points: points(step, name, one.unit, heardMs)
    .filter(([ms]) => ms >= range[0]) }));
  const all = lines.flatMap((line) => line.points.map(([, value]) => value));
  const said = UNITS[one.unit].text;
  const now = lines.map((line, n) => {
    const value = pointedMs === null ? (isRunning ? line.points[line.points.length - 1] : undefined) : nearest(line.points, step);
    const isNamed = lines.length > 1 || pointedMs !== null, isValued = isRunning || pointedMs !== null;
    return line.points.length && (isNamed || isValued) ? element("span", { class: `value line-${n}` },
      isNamed ? `${line.text} ` : "", isValued ? element("b", null, value ? said(value[1]) : "–") : null) : null;
  });
  const about = `${one.title}: ` + (all.length ? lines.map((line) => line.points.length
    ? `${line.text} from ${said(Math.min(...line.points.map(([, v]) => v)))} to ${said(Math.max(...line.points.map(([, v]) => v)))}`
    : "").filter(Boolean).join("; ") : one.empty);
  return element("figure", { class: "chart", "data-chart": one.id },
    element("figcaption", null, element("span", { class: "chart-title" }, one.title),
      limit && all.length ? element("span", { class: "faint" }, limit) : null, now),
    all.length ? drawing(one, lines, above(Math.max(...all), one.unit), range, step, about)
      : element("p", { class: "faint empty" }, one.empty));
}

// The point of the pointed moment; for a value that not each bucket has, the last one before it.
function nearest(found, step) {
  const before = found.filter(([ms]) => ms <= pointedMs);
  const last = before[before.length - 1];
  return last && pointedMs - last[0] <= step.buckets * step.step_ms * GAP ? last : undefined;
}

function drawing(one, lines, top, [begin, end], step, about) {
  const x = (ms) => LEFT + ((ms - begin) / (end - begin)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
  const said = one.unit === "rate" ? compact : UNITS[one.unit].text;
  const marks = [0, top / 2, top].map((value) => [
    element("path", { class: "grid", d: `M${LEFT},${y(value)}H${WIDTH - RIGHT}` }),
    element("text", { x: LEFT - 5, y: y(value) + 3.5, "text-anchor": "end" }, said(value))]);
  const moments = [[begin, "start"], [(begin + end) / 2, "middle"], [end, "end"]].map(([ms, anchor]) =>
    element("text", { x: x(ms), y: HEIGHT - 4, "text-anchor": anchor }, momentText(ms, step.step_ms)));
  const width = (WIDTH - LEFT - RIGHT) / ((end - begin) / step.step_ms);
  const drawn = lines.map((line, n) => (one.isBars
    ? line.points.filter(([, value]) => value).map(([ms, value]) => element("rect", { class: `bar line-${n}`, x: x(ms).toFixed(1),
      y: y(value).toFixed(1), width: Math.max(2, width).toFixed(1), height: (y(0) - y(value)).toFixed(1) }))
    : element("path", { class: `line line-${n}`, d: path(line.points, x, y, (end - begin) * GAP) })));
  return element("svg", { role: "img", tabindex: "0", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-label": about,
    "data-begin": begin, "data-end": end, "data-step": step.step_ms }, marks, moments, drawn,
  pointedMs !== null && pointedMs >= begin && pointedMs <= end
    ? element("path", { class: "cursor", d: `M${x(pointedMs).toFixed(1)},${TOP}V${HEIGHT - BOTTOM}` }) : null);
}

function path(found, x, y, gapMs) {
  let before = null;
  return found.map(([ms, value]) => {
    const to = `${x(ms).toFixed(1)},${y(value).toFixed(1)}`;
    const isNew = before === null || ms - before > gapMs;
    before = ms;
    return isNew ? `M${to}h1` : `L${to}`;
  }).join("");
}

// --- the pointer --------------------------------------------------------------------------------------

export function listenToCharts(node, draw) {
  changed = draw;
  const point = (ms) => { if (ms !== pointedMs) { pointedMs = ms; changed(); } };
  node.addEventListener("pointermove", (event) => {
    const svg = event.target.closest(".chart svg");
    if (svg === null) { if (event.pointerType === "mouse") point(null); return; }
    const box = svg.getBoundingClientRect(), { begin, end, step } = svg.dataset;
    const part = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    const ms = Number(begin) + Math.min(1, Math.max(0, part)) * (end - begin);
    point(Math.floor(ms / step) * step);
  });
  node.addEventListener("pointerleave", () => point(null));
  node.addEventListener("keydown", (event) => {
    const svg = event.target.closest(".chart svg");
    if (svg === null || !["ArrowLeft", "ArrowRight", "Escape"].includes(event.key)) return;
    event.preventDefault();
    const { begin, end, step } = svg.dataset;
    const next = (pointedMs ?? Number(end)) + (event.key === "ArrowLeft" ? -step : Number(step));
    point(event.key === "Escape" ? null : Math.min(end - step, Math.max(begin, next)));
  });
  node.addEventListener("click", (event) => {
    if (event.target.dataset.span === undefined) return;
    chosenStepMs = Number(event.target.dataset.span);
    pointedMs = null;
    changed();
  });
}

// Forget what was chosen for another job.
export function forgetCharts() { pointedMs = chosenStepMs = null; }
