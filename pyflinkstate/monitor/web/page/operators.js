// Tables of what is known of operators: their rates, subtasks, latencies, side outputs and metrics.

import { bars, element } from "./elements.js";
import { slowOf } from "./graph.js";
import { isRunning, lagOf } from "./jobs.js";
import { numeric, table } from "./tables.js";
import { bytes, decimal, duration, most, number, share, spread } from "./units.js";

// A skew from this on is marked.
const LARGE_SKEW = 1.5;

const greatest = (values) => values[most(values)] ?? -1;

function busy(operator) {
  const shares = operator.busy_ms_per_s, busiest = most(shares);
  if (busiest < 0) return "–";
  const about = `${share(shares[busiest])} in subtask ${busiest}`;
  return [shares.length > 1 ? bars(shares, about, slowOf(operator), 1000) : null, element("span", null, about)];
}

export function operatorTable(job) {
  const running = isRunning(job), largest = Math.max(...job.operators.map((operator) => operator.skew ?? 0));
  const isWorst = (o) => o.skew !== null && o.skew >= Math.max(largest, LARGE_SKEW);
  const link = (o) => element("a", { href: `#/graph/${encodeURIComponent(o.id)}`, title: o.id }, o.name);
  return table("Operators", [
    ["Name", link, "name", (o) => o.name],
    ["Kind", (o) => o.kind],
    numeric("Parallelism", (o) => o.parallelism),
    numeric("Records in", (o) => o.records_in),
    numeric("Records out", (o) => o.records_out),
    running && numeric("In/s", (o) => o.records_in_per_s),
    running && numeric("Out/s", (o) => o.records_out_per_s),
    ["Watermark lag", (o) => lagOf(o, job), "number", (o) => -(o.watermark_ms ?? 0)],
    running && ["Busy by subtask", busy, "busy", (o) => greatest(o.busy_ms_per_s)],
    running && ["Backpressure", (o) => share(o.back_pressured_ms_per_s[most(o.back_pressured_ms_per_s)]), "number",
      (o) => greatest(o.back_pressured_ms_per_s)],
    ["Records by subtask", (o) => (o.subtask_records.length > 1 ? bars(o.subtask_records, spread(o.subtask_records, number)) : "–")],
    ["Skew", (o) => decimal(o.skew) + (isWorst(o) ? " (most)" : ""), "number", (o) => o.skew],
  ], job.operators, (o) => (isWorst(o) ? "slowest" : null));
}

function memory({ operator, n }) {
  const used = operator.memory_bytes[n], limit = operator.memory_limit_bytes;
  if (!used) return "–";
  if (!limit) return bytes(used);
  return [element("meter", { min: 0, max: limit, value: used, high: limit * 0.9, "aria-label": "of its limit" }),
    ` ${bytes(used)} of ${bytes(limit)}`];
}

export function subtaskTable(job, operators) {
  const running = isRunning(job);
  const rows = operators.flatMap((operator) => {
    const slow = slowOf(operator);
    return operator.busy_ms_per_s.map((_, n) => ({ operator, n, isSlow: running && n === slow }));
  });
  if (!rows.length) return null;
  const of = (title, name, shown) => numeric(title, ({ operator, n }) => operator[name][n], shown);
  return table(running ? "Subtasks in the last seconds" : "Subtasks", [
    ["Operator", ({ operator }) => operator.name, "name"],
    ["Subtask", ({ n, isSlow }) => number(n) + (isSlow ? " (slow)" : ""), "number", ({ n }) => n],
    running && of("Busy", "busy_ms_per_s", share),
    running && of("Idle", "idle_ms_per_s", share),
    running && of("Backpressured", "back_pressured_ms_per_s", share),
    of("Records in", "subtask_records"),
    ["Memory", memory, "number", ({ operator, n }) => operator.memory_bytes[n]],
    of("Pending timers", "timers"),
  ], rows, (row) => (row.isSlow ? "slow" : null));
}

export function sideTable(operators) {
  const rows = operators.flatMap(({ name, side_outputs: tags, records_late: late }) => [
    ...Object.entries(tags).map(([tag, count]) => ({ name, to: `side output ${tag}`, count })),
    ...(late ? [{ name, to: "late, dropped", count: late }] : []),
  ]);
  return rows.length ? table("Side outputs and late records", [
    ["Operator", ({ name }) => name, "name"], ["Where to", ({ to }) => to, "name"], numeric("Records", ({ count }) => count)], rows)
    : null;
}

export function latencyTable(job, operators) {
  const names = new Map(job.operators.map((operator) => [operator.id, operator.name]));
  const rows = operators.flatMap(({ name, latency_ms: found }) =>
    Object.entries(found).map(([source, quantiles]) => ({ name, source, quantiles })));
  const quantile = (title, key) => numeric(title, ({ quantiles }) => quantiles[key], duration);
  return rows.length && isRunning(job) ? table("Latency from sources", [
    ["Operator", ({ name }) => name, "name"], ["From", ({ source }) => names.get(source) ?? source, "name"],
    quantile("Median", "p50"), quantile("99 %", "p99"), quantile("Longest", "max")], rows) : null;
}

// By kind: the value of a metric as a text.
const VALUES = {
  counter: (m) => number(m.count ?? 0),
  gauge: (m) => decimal(m.total ?? 0),
  meter: (m) => `${decimal(m.rate ?? 0)}/s, ${number(m.count ?? 0)} in all`,
  distribution: (m) => `${number(m.count ?? 0)} values, ${decimal(m.minimum ?? 0)} to ${decimal(m.maximum ?? 0)}`,
};

export const metricTable = (found) => (found.length ? table("Metrics of functions", [
  ["Name", (m) => m.name, "name"], ["Task", (m) => m.task, "name"], ["Kind", (m) => m.kind],
  ["Value", (m) => (VALUES[m.kind] ?? VALUES.distribution)(m), "number", (m) => m.count ?? m.total ?? 0],
], found) : null);
