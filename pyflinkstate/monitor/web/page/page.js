// The page of a job: one tab at a time is drawn, of the last answer. All addresses are relative, so that it works
// behind a proxy with a prefix.

import { charts, forgetCharts, listenToCharts } from "./charts.js";
import { bars, byId, element, facts, fill, nothing, show } from "./elements.js";
import { graph, slowOf } from "./graph.js";
import { clicked, onTableChange, table } from "./tables.js";
import { bytes, decimal, duration, most, number, rate, share, short, spread, time } from "./units.js";

const PHASES = ["planning", "reading", "slots", "finishing", "preparing"];
const AGAIN_MS = 5000;
const UNREAD = "The data could not be read";
const ASK_AGAIN_MS = 1000;
const SAMPLE_AGAIN_MS = 20000;
// A job of another program that has told nothing for so long has probably died.
const SILENT_MS = 60000;
const QUESTIONS = {
  savepoint: "Take a savepoint at the next barrier? The job goes on.",
  stop: "Stop the job with a savepoint? It can be started again from there.",
  cancel: "Cancel the job? What was not committed is lost to it; a new start goes back to the last checkpoint.",
};

let jobId = null;
let session = { has_actions: false, action_token: null };
let isLive = false;
let jobs = [];
let isLost = false;
// The last answer, which tabs are drawn of.
let last = null;

// --- what a job is like -------------------------------------------------------------------------------

const isRunning = (job) => !job.ended_ms && (job.is_live || Date.now() - job.heard_ms < SILENT_MS);
const untilMs = (job) => job.ended_ms ?? (isRunning(job) ? Date.now() : job.heard_ms);
const ago = (ms) => `${duration(Math.max(0, Date.now() - ms))} ago`;

function statusOf(job) {
  if (job.ended_ms || job.is_live) return job.status;
  return isRunning(job) ? job.status : "NO END KNOWN";
}

// What to know first of a job that does not run: that, since when, and where it can go on.
function noticeOf(job) {
  if (isRunning(job)) return job.is_live ? "" : "This job runs in another program; the page reads its journal.";
  const saved = job.last_checkpoint;
  const from = saved ? ` Its last checkpoint is ${saved.checkpoint_id}, after epoch ${saved.epoch}.` : "";
  return job.ended_ms ? `This job has ended (${job.status}) at ${time(job.ended_ms)}, ${ago(job.ended_ms)}.` + (job.status === "FINISHED" ? "" : from)
    : `This job does not run: nothing has been heard of it since ${time(job.heard_ms)}, ${ago(job.heard_ms)}, and no end is known.` + from;
}

const where = (failure) =>
  (failure.operator ? `, operator ${failure.operator}` : "") + (failure.key ? `, key ${failure.key}` : "") +
  (failure.record ? `, record ${failure.record}` : "");

// The newest failure in a line; the pointer shows all of it.
function failureLine(failure) {
  return failure ? element("p", { class: "failure", title: where(failure) }, element("strong", { class: "bad-text" }, "Last failure: "),
    `${time(failure.at)}, ${failure.type}` + short(where(failure), 300), ". ", element("a", { href: "#/failures" }, "All failures")) : null;
}

// --- overview -----------------------------------------------------------------------------------------

function busiest(job) {
  const found = job.operators.map((operator) => ({ operator, n: most(operator.busy_ms_per_s) })).filter(({ n }) => n >= 0);
  const place = most(found.map(({ operator, n }) => operator.busy_ms_per_s[n]));
  if (!isRunning(job) || place < 0) return null;
  const { operator, n } = found[place];
  return `${share(operator.busy_ms_per_s[n])}, ${operator.name}[${n}]`;
}

function drawOverview({ job, history }) {
  const saved = job.last_checkpoint, counts = job.checkpoint_counts, running = isRunning(job);
  const limits = job.operators.map((operator) => operator.memory_limit_bytes).filter(Boolean);
  show("overview",
    facts(
      ["Started", time(job.started_ms)],
      [running ? "Uptime" : "Lasted", duration(job.started_ms ? untilMs(job) - job.started_ms : null)],
      running && job.is_live ? null : ["Last heard of", time(job.heard_ms)],
      ["Epoch", number(job.epoch)],
      ["Committed epoch", number(job.committed_epoch)],
      running ? ["Epochs in flight", number(job.epochs_in_flight)] : null,
      ["Restarts", number(job.restarts)],
      running ? ["Busiest subtask", busiest(job) ?? "–"] : null,
      ["Checkpoints", `${number((counts.completed || 0) + (counts.savepoints || 0))} completed, ${number(counts.failed || 0)} failed`],
      ["Last checkpoint", saved ? `${saved.checkpoint_id}: ${bytes(saved.checkpointed_bytes)} in ${duration(saved.duration_ms)}` : "none"],
    ),
    failureLine(job.last_failure),
    charts(job, history, running, { memory: limits.length ? `of ${bytes(Math.max(...limits))}` : null }));
}

// --- graph --------------------------------------------------------------------------------------------

function drawGraph(found) {
  const { job, metrics } = found, chosen = job.operators.find((operator) => operator.id === tab()[1]);
  show("graph",
    job.operators.length ? graph(job, isRunning(job), chosen?.id) : null,
    chosen ? node(chosen, found) : nothing("An operator of the graph opens what is known of it."),
    chosen ? null : [operatorTable(job), subtaskTable(job, job.operators), latencyTable(job, job.operators),
      sideTable(job.operators), metricTable(metrics.metrics)]);
}

// All that is known of one operator.
function node(operator, found) {
  const { job, metrics, samples, state } = found;
  const own = state.operators[operator.id];
  return element("section", { id: "node", "aria-label": `Operator ${operator.name}` },
    element("h3", null, operator.name, " ", element("a", { href: "#/graph" }, "Close")),
    facts(["Kind", operator.kind], ["Id", operator.id], ["Parallelism", number(operator.parallelism)],
      ["Max parallelism", number(operator.max_parallelism)],
      ["Records in", number(operator.records_in)], ["Records out", number(operator.records_out)],
      isRunning(job) ? ["In/s", rate(operator.records_in_per_s)] : null,
      isRunning(job) ? ["Out/s", rate(operator.records_out_per_s)] : null,
      ["Watermark lag", lagOf(operator, job)], ["Skew", decimal(operator.skew)],
      operator.records_dropped ? ["Dropped by filters", number(operator.records_dropped)] : null,
      operator.records_malformed ? ["Malformed", number(operator.records_malformed)] : null),
    subtaskTable(job, [operator]),
    maySteer(job) ? threads(operator) : null,
    latencyTable(job, [operator]), sideTable([operator]),
    metricTable(metrics.metrics.filter((one) => one.task.startsWith(`${operator.id}[`) || one.name.startsWith(`${operator.name}.`))),
    diskTables([operator]),
    own ? [sizeTable(state.checkpoint_id, { [operator.id]: own }), element("div", { class: "largest" }, largestOf(operator.id))] : null,
    operator.kind === "exchange" ? null : sampled([operator], samples, job));
}

const lagOf = (operator, job) =>
  (operator.watermark_ms === null ? "–" : duration(Math.max(0, untilMs(job) - operator.watermark_ms)));

function busy(operator) {
  const shares = operator.busy_ms_per_s, busiest = most(shares);
  if (busiest < 0) return "–";
  const about = `${share(shares[busiest])} in subtask ${busiest}`;
  return [shares.length > 1 ? bars(shares, about, slowOf(operator), 1000) : null, element("span", null, about)];
}

function operatorTable(job) {
  const skews = job.operators.map((operator) => operator.skew ?? 0), running = isRunning(job);
  const worst = Math.max(...skews) >= 1.5 ? Math.max(...skews) : Infinity;
  const link = (o) => element("a", { href: `#/graph/${encodeURIComponent(o.id)}`, title: o.id }, o.name);
  return table("Operators", [
    ["Name", link, "name", (o) => o.name],
    ["Kind", (o) => o.kind],
    ["Parallelism", (o) => number(o.parallelism), "number", (o) => o.parallelism],
    ["Records in", (o) => number(o.records_in), "number", (o) => o.records_in],
    ["Records out", (o) => number(o.records_out), "number", (o) => o.records_out],
    ...(running ? [
      ["In/s", (o) => number(o.records_in_per_s), "number", (o) => o.records_in_per_s],
      ["Out/s", (o) => number(o.records_out_per_s), "number", (o) => o.records_out_per_s]] : []),
    ["Watermark lag", (o) => lagOf(o, job), "number", (o) => -(o.watermark_ms ?? 0)],
    ...(running ? [
      ["Busy by subtask", busy, "busy", (o) => o.busy_ms_per_s[most(o.busy_ms_per_s)] ?? -1],
      ["Backpressure", (o) => share(o.back_pressured_ms_per_s[most(o.back_pressured_ms_per_s)]), "number",
        (o) => o.back_pressured_ms_per_s[most(o.back_pressured_ms_per_s)] ?? -1]] : []),
    ["Records by subtask", (o) => (o.subtask_records.length > 1 ? bars(o.subtask_records, spread(o.subtask_records, number)) : "–")],
    ["Skew", (o) => (o.skew === null ? "–" : decimal(o.skew) + (o.skew >= worst ? " (most)" : "")), "number", (o) => o.skew],
  ], job.operators, (o) => ((o.skew ?? 0) >= worst ? "slowest" : null));
}

function subtaskTable(job, operators) {
  const running = isRunning(job);
  const rows = operators.flatMap((operator) => {
    const slow = slowOf(operator);
    return operator.busy_ms_per_s.map((_, n) => ({ operator, n, isSlow: running && n === slow }));
  });
  if (!rows.length) return null;
  const memory = ({ operator, n }) => {
    const used = operator.memory_bytes[n], limit = operator.memory_limit_bytes;
    if (!used) return "–";
    if (!limit) return bytes(used);
    return [element("meter", { min: 0, max: limit, value: used, high: limit * 0.9, "aria-label": "of its limit" }),
      ` ${bytes(used)} of ${bytes(limit)}`];
  };
  const shareOf = (title, name) => [title, ({ operator, n }) => share(operator[name][n]), "number", ({ operator, n }) => operator[name][n]];
  return table(running ? "Subtasks in the last seconds" : "Subtasks", [
    ["Operator", ({ operator }) => operator.name, "name"],
    ["Subtask", ({ n, isSlow }) => number(n) + (isSlow ? " (slow)" : ""), "number", ({ n }) => n],
    ...(running ? [shareOf("Busy", "busy_ms_per_s"), shareOf("Idle", "idle_ms_per_s"),
      shareOf("Backpressured", "back_pressured_ms_per_s")] : []),
    ["Records in", ({ operator, n }) => number(operator.subtask_records[n]), "number", ({ operator, n }) => operator.subtask_records[n]],
    ["Memory", memory, "number", ({ operator, n }) => operator.memory_bytes[n]],
    ["Pending timers", ({ operator, n }) => number(operator.timers[n]), "number", ({ operator, n }) => operator.timers[n]],
  ], rows, (row) => (row.isSlow ? "slow" : null));
}

function sideTable(operators) {
  const rows = operators.flatMap((operator) => [
    ...Object.entries(operator.side_outputs).map(([tag, count]) => [operator.name, `side output ${tag}`, count]),
    ...(operator.records_late ? [[operator.name, "late, dropped", operator.records_late]] : []),
  ]);
  return rows.length ? table("Side outputs and late records", [
    ["Operator", ([name]) => name, "name"], ["Where to", ([, to]) => to, "name"],
    ["Records", ([, , count]) => number(count), "number", ([, , count]) => count]], rows) : null;
}

function latencyTable(job, operators) {
  const names = new Map(job.operators.map((operator) => [operator.id, operator.name]));
  const rows = operators.flatMap((operator) => Object.entries(operator.latency_ms).map(
    ([source, found]) => ({ operator, source, found })));
  const quantile = (title, name) => [title, ({ found }) => duration(found[name]), "number", ({ found }) => found[name]];
  return rows.length && isRunning(job) ? table("Latency from sources", [
    ["Operator", ({ operator }) => operator.name, "name"], ["From", ({ source }) => names.get(source) ?? source, "name"],
    quantile("Median", "p50"), quantile("99 %", "p99"), quantile("Longest", "max")], rows) : null;
}

function metricTable(found) {
  if (!found.length) return null;
  const value = (m) => (m.kind === "counter" ? number(m.count ?? 0) : m.kind === "gauge" ? decimal(m.total ?? 0)
    : m.kind === "meter" ? `${decimal(m.rate ?? 0)}/s, ${number(m.count ?? 0)} in all`
    : `${number(m.count ?? 0)} values, ${decimal(m.minimum ?? 0)} to ${decimal(m.maximum ?? 0)}`);
  return table("Metrics of functions", [
    ["Name", (m) => m.name, "name"], ["Task", (m) => m.task, "name"], ["Kind", (m) => m.kind],
    ["Value", value, "number", (m) => m.count ?? m.total ?? 0],
  ], found);
}

// --- epochs -------------------------------------------------------------------------------------------

function drawEpochs({ epochs: { epochs: found } }) {
  if (!found.length) { show("epochs", nothing("No epoch has run yet.")); return; }
  const total = (epoch) => PHASES.reduce((sum, phase) => sum + (epoch.phases_ms[phase] || 0), 0);
  const longest = Math.max(1, ...found.map(total));
  const said = (epoch) => `Epoch ${epoch.epoch}: ${duration(total(epoch))}, ` +
    PHASES.map((phase) => `${phase} ${duration(epoch.phases_ms[phase])}`).join(", ");
  const columns = found.map((epoch) => element("div", { title: said(epoch) },
    PHASES.map((phase) => element("i", { class: phase, "height%": ((100 * (epoch.phases_ms[phase] || 0)) / longest).toFixed(2) }))));
  show("epochs",
    element("ul", { class: "legend" }, PHASES.map((phase) => element("li", null, element("i", { class: phase }), phase))),
    element("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "Timeline of epochs" },
      element("div", { class: "timeline", role: "img", "aria-label":
        `Time of the last ${found.length} epochs, at most ${duration(longest)}; the table below has the same.` }, columns)),
    table("Epochs, the newest first", [
      ["Epoch", (e) => number(e.epoch), "number", (e) => e.epoch],
      ["Ended", (e) => time(e.at), "", (e) => e.at],
      ["Records", (e) => number(e.records), "number", (e) => e.records],
      ["Restarts", (e) => number(e.attempt), "number", (e) => e.attempt],
      ...PHASES.map((phase) => [phase, (e) => duration(e.phases_ms[phase]), "number", (e) => e.phases_ms[phase]]),
      ["Commit", (e) => duration(e.commit_ms), "number", (e) => e.commit_ms],
    ], [...found].reverse()));
}

// --- checkpoints --------------------------------------------------------------------------------------

// The first line of a failure, or the last name of a folder; the pointer shows all of it.
const folder = (c) => short((c.failure ?? (c.uri ?? "–").split("?")[0].split("/").pop()).split("\n")[0], 120);

function drawCheckpoints({ checkpoints: { checkpoints: found } }) {
  if (!found.length) { show("checkpoints", nothing("No checkpoint has been taken yet.")); return; }
  const newest = [...found].reverse();
  const told = newest.find((one) => one.subtasks.length);
  const kind = (c) => (c.is_savepoint ? "savepoint" : c.is_incremental ? "incremental" : "full");
  show("checkpoints",
    table("Checkpoints, the newest first", [
      ["Id", (c) => number(c.checkpoint_id), "number", (c) => c.checkpoint_id],
      ["Kind", kind],
      ["Result", (c) => (c.failure === null ? "completed" : element("span", { class: "bad-text" }, "failed")), "",
        (c) => (c.failure === null ? "completed" : "failed")],
      ["Triggered", (c) => time(c.triggered_ms), "", (c) => c.triggered_ms],
      ["Duration", (c) => duration(c.duration_ms), "number", (c) => c.duration_ms],
      ["Pause", (c) => duration(c.sync_ms), "number", (c) => c.sync_ms],
      ["Asynchronous", (c) => duration(c.async_ms), "number", (c) => c.async_ms],
      ["Written", (c) => bytes(c.checkpointed_bytes), "number", (c) => c.checkpointed_bytes],
      ["A restore reads", (c) => bytes(c.size_bytes), "number", (c) => c.size_bytes],
      ["Folder, or why it failed", (c) => element("span", { title: c.failure ?? c.uri }, folder(c)), "name", folder],
    ], newest),
    told ? table(`Subtasks in checkpoint ${told.checkpoint_id}`, [
      ["Operator", ([operator]) => operator, "name"],
      ["Subtask", ([, n]) => number(n), "number", ([, n]) => n],
      ["Pause", ([, , ms]) => duration(ms), "number", ([, , ms]) => ms],
      ["Asynchronous", ([, , , ms]) => duration(ms), "number", ([, , , ms]) => ms],
      ["Written", ([, , , , , size]) => bytes(size), "number", ([, , , , , size]) => size],
      ["A restore reads", ([, , , , size]) => bytes(size), "number", ([, , , , size]) => size],
    ], told.subtasks) : null);
}

// --- state --------------------------------------------------------------------------------------------

// The full size of each checkpoint that is known, the oldest first: the bytes that a restore from it reads.
function growth({ checkpoints: found }) {
  const sizes = found.filter((one) => one.failure === null && !one.is_savepoint).map((one) => one.size_bytes);
  if (sizes.length < 2) return null;
  const about = `A restore of the last ${sizes.length} checkpoints reads ${bytes(sizes[0])} to ${bytes(sizes[sizes.length - 1])}` +
    (found.some((one) => one.is_incremental) ? "; increments add to it until all state is written again" : "");
  return element("figure", null, bars(sizes, about), element("figcaption", null, about));
}

// --- the largest keys: asked for by the viewer, and never by itself -----------------------------------

const largest = new Map();

async function findLargest(operator) {
  const job = jobId, path = `jobs/${job}/largest-keys?operator=${encodeURIComponent(operator)}`;
  try {
    let answer = { is_ready: false };
    largest.set(operator, answer);
    load();
    while (!answer.is_ready && job === jobId) {
      answer = await get(path);
      if (!answer.is_ready) await new Promise((done) => setTimeout(done, ASK_AGAIN_MS));
    }
    largest.set(operator, answer);
  } catch (error) {
    largest.set(operator, { is_ready: true, error: `They could not be found (${error.message}).` });
  }
  load();
}

function largestOf(name) {
  const answer = largest.get(name);
  const button = element("button", { type: "button", "data-largest": name,
    disabled: answer && !answer.is_ready ? "" : null }, `Find the largest keys of ${name}`);
  if (!answer) return button;
  if (!answer.is_ready) return [button, element("p", { role: "status" }, "They are being found in the last checkpoint.")];
  if (answer.error) return [button, element("p", { role: "status", class: "bad-text" }, answer.error)];
  return [button, Object.entries(answer.states).map(([state, found]) =>
    table(`Largest keys of ${state} in checkpoint ${answer.checkpoint_id}: ${number(found.entries)} entries, ` +
      `${bytes(found.bytes)} as columns` + (found.is_whole ? "" : "; the search ended before it had seen all"), [
      ["Key", (k) => k.key, "name"],
      ["Entries", (k) => number(k.entries), "number", (k) => k.entries],
      ["Size", (k) => bytes(k.bytes), "number", (k) => k.bytes],
    ], found.keys))];
}

const sizeTable = (id, operators) => table(`Bytes of each state in checkpoint ${id}, compressed`, [
  ["Operator", ([name]) => name, "name"],
  ["State", ([, of]) => of, "name"],
  ["Size", ([, , size]) => bytes(size), "number", ([, , size]) => size],
], Object.keys(operators).sort().flatMap((name) => Object.entries(operators[name].bytes).map(([of, size]) => [name, of, size])));

// What backends that keep state on disk measure, by subtask and by state; nothing if there are none.
function diskTables(operators) {
  const rows = operators.flatMap((operator) => operator.disk.flatMap((disk, n) => (disk ? [{ operator, n, disk }] : [])));
  if (!rows.length) return null;
  const of = (title, name, show) => [title, ({ disk }) => show(disk.properties[name]), "number", ({ disk }) => disk.properties[name]];
  const states = rows.flatMap(({ operator, n, disk }) => Object.entries(disk.memory_bytes).map(
    ([state, size]) => ({ operator, n, state, size, hits: disk.hit_rates[state] })));
  const who = [["Operator", ({ operator }) => operator.name, "name"], ["Subtask", ({ n }) => number(n), "number", ({ n }) => n]];
  return [
    table("State on disk", [...who, of("Files", "total-sst-files-size", bytes),
      of("Not in files yet", "cur-size-all-mem-tables", bytes), of("Block cache", "block-cache-usage", bytes),
      of("To compact", "estimate-pending-compaction-bytes", bytes), of("Compactions", "num-running-compactions", number),
      of("Flushes", "num-running-flushes", number), of("Errors", "background-errors", number)], rows),
    table("State in memory, of which a part is on disk", [...who, ["State", ({ state }) => state, "name"],
      ["In memory", ({ size }) => bytes(size), "number", ({ size }) => size],
      ["Hit rate", ({ hits }) => share(hits === null ? null : hits * 1000), "number", ({ hits }) => hits]], states),
  ];
}

function drawState({ job, state: { checkpoint_id: id, operators }, checkpoints }) {
  const names = Object.keys(operators).sort(), disk = diskTables(job.operators);
  if (!names.length) { show("state", nothing("The sizes of state are known after the first checkpoint."), disk); return; }
  show("state",
    disk,
    growth(checkpoints),
    sizeTable(id, operators),
    table("How state is spread", [
      ["Operator", (name) => name, "name"],
      ["By key group", (name) => bars(operators[name].key_groups, spread(operators[name].key_groups, bytes))],
      ["By subtask", (name) => bars(operators[name].subtasks, spread(operators[name].subtasks, bytes))],
    ], names),
    names.map((name) => element("div", { class: "largest" }, largestOf(name))));
}

// --- records of streams: sampled while somebody looks, and asked for again and again -------------------

const watched = new Set();
const maySteer = (job) => session.has_actions && job.is_live && !job.ended_ms;

async function tellSample(stream) {
  const action = watched.has(stream) ? "sample" : "unsample";
  try { await post(`jobs/${jobId}/${action}?stream=${encodeURIComponent(stream)}`); }
  catch (error) { say(`The job was not told (${error.message}).`); }
}

// The samples of some operators, and buttons that switch them on.
function sampled(operators, { samples }, job) {
  const ids = new Set(operators.map((operator) => operator.id));
  const of = (stream) => stream.split(".side_output.")[0];
  const shown = Object.entries(samples).filter(([stream]) => ids.has(of(stream)) && (!maySteer(job) || watched.has(of(stream))));
  return [
    maySteer(job) ? [nothing("A few records of each epoch are shown while a stream is switched on. For a sink these are its input."),
      element("div", { class: "choice", role: "group", "aria-label": "Streams" }, operators.map((operator) =>
        element("button", { type: "button", "data-stream": operator.id, "aria-pressed": String(watched.has(operator.id)) },
          `Records of ${operator.name}`)))]
      : nothing("Records can be shown while the job runs, if the page may steer it."),
    shown.map(([stream, { epoch, records }]) => table(`Records of ${stream} in epoch ${epoch}`, [
      ["Record", (record) => record, "name line"]], records)),
    operators.some(({ id }) => watched.has(id)) && !shown.length ? nothing("They come with the next epoch.") : null,
  ];
}

const drawData = ({ samples, job }) =>
  show("data", sampled(job.operators.filter((operator) => operator.kind !== "exchange"), samples, job));

// --- lines of slots: read only while somebody looks at them ---------------------------------------------

async function drawLogs() {
  const asked = new URLSearchParams({ contains: byId("logs-contains").value, slot: byId("logs-slot").value,
    level: byId("logs-level").value });
  const found = await get(`jobs/${jobId}/logs?${asked}`);
  if (!found.lines.length) {
    show("logs", nothing(found.kept ? "No line is like that." : isLive ? "There are no lines yet." : "A job that runs elsewhere, or has run, has none here."));
    return;
  }
  show("logs", table(`${number(found.lines.length)} of ${number(found.matching)} lines that match, of ${number(found.kept)} that are kept, the newest first`, [
    ["Time", ([at]) => time(at), "", ([at]) => at],
    ["Slot", ([, slot]) => slot, "name"],
    ["Level", ([, , level]) => level],
    ["Line", ([, , , line]) => line, "line"],
  ], found.lines.reverse()));
}

// Ask for the threads of an operator's subtasks, whose stacks come as lines of their slots.
const threads = (operator) => (operator.kind === "keyed" ? element("div", { class: "choice", role: "group", "aria-label": "Threads" },
  Array.from({ length: operator.parallelism }, (_, n) =>
    element("button", { type: "button", "data-threads": operator.id, "data-subtask": n }, `Threads of subtask ${n}`))) : null);

async function askThreads({ threads: operator, subtask }) {
  try {
    say((await (await post(`jobs/${jobId}/threads?stream=${encodeURIComponent(operator)}&subtask=${subtask}`)).json()).message);
    byId("logs-slot").value = `${operator}[${subtask}]`;
    location.hash = "#/logs";
  } catch (error) { say(`The job was not told (${error.message}).`); }
}

// --- failures and configuration -----------------------------------------------------------------------

function drawFailures({ failures: { failures: found } }) {
  if (!found.length) { show("failures", nothing("No failure is known.")); return; }
  show("failures", [...found].reverse().map((failure, n) =>
    element("details", { open: n === 0 ? "" : null },
      element("summary", null, `${time(failure.at)}: ${failure.type}` + where(failure)),
      element("pre", { tabindex: "0" }, failure.message))));
}

function drawConfiguration({ job }) {
  show("configuration",
    facts(["Job id", job.id], ["Runs", number(job.runs)], ["Checkpoints", job.directory ?? "none"],
      ["Restored from", job.restored_from ?? "–"], job.events_left_out ? ["Events left out", number(job.events_left_out)] : null),
    table("Operators of the program", [
      ["Name", (o) => o.name, "name"], ["Id", (o) => o.id, "name"], ["Kind", (o) => o.kind],
      ["Parallelism", (o) => number(o.parallelism), "number", (o) => o.parallelism],
      ["Max parallelism", (o) => number(o.max_parallelism), "number", (o) => o.max_parallelism],
      ["Memory limit of a slot", (o) => bytes(o.memory_limit_bytes), "number", (o) => o.memory_limit_bytes],
    ], job.operators),
    Object.keys(job.settings ?? {}).length ? table("Settings", [
      ["Key", ([key]) => key, "name"], ["Value", ([, value]) => value, "name line"]], Object.entries(job.settings))
      : nothing("The settings of this job are not known."));
}

// --- tabs -----------------------------------------------------------------------------------------------

const TABS = { overview: drawOverview, graph: drawGraph, epochs: drawEpochs, checkpoints: drawCheckpoints, state: drawState,
  data: drawData, logs: drawLogs, failures: drawFailures, configuration: drawConfiguration };

// The tab and what is chosen in it, as the address says.
function tab() {
  const [, name, chosen] = location.hash.split("/");
  try { return [TABS[name] ? name : "overview", chosen === undefined ? null : decodeURIComponent(chosen)]; }
  catch { return ["overview", null]; }
}

async function draw() {
  if (last === null) return;
  const [name] = tab();
  for (const link of document.querySelectorAll("nav a")) {
    const isCurrent = link.getAttribute("href") === `#/${name}`;
    if (isCurrent) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  for (const one of Object.keys(TABS)) byId(one).hidden = one !== name;
  await TABS[name](last);
  document.body.dataset.tab = name;
}

// Draw at once, and say so if what a tab reads cannot be read.
const drawNow = () => draw().catch((error) => say(`${UNREAD} (${error.message}).`));

// --- data -------------------------------------------------------------------------------------------

async function get(path) {
  const answer = await fetch("api/" + path, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

const KINDS = { RUNNING: "good", FINISHED: "good", RESTARTING: "wait", CANCELED: "wait", FAILED: "bad", "NO END KNOWN": "bad" };

function head(job) {
  const status = statusOf(job), spark = sparkOf(job);
  byId("name").textContent = byId("name").title = job.name;
  byId("status").textContent = status;
  byId("status").className = "badge " + (KINDS[status] || "");
  byId("notice").textContent = noticeOf(job);
  document.title = `${job.name} (${status}) – pyflinkstate`;
  isLive = job.is_live;
  byId("actions").hidden = !maySteer(job);
  byId("spark").hidden = spark === null;
  if (spark !== null) byId("spark").href = spark;
}

// The address of Spark's page, which is there while the job runs; nothing but http is a link.
function sparkOf(job) {
  const page = job.settings?.["spark.page"] ?? "";
  return job.is_live && !job.ended_ms && /^https?:\/\//.test(page) ? page : null;
}

function choose(found) {
  const before = jobId;
  jobs = found;
  if (!jobs.some((job) => job.id === jobId)) jobId = jobs.length ? jobs[jobs.length - 1].id : null;
  byId("chooser").hidden = jobs.length < 2;
  fill(byId("jobs"), jobs.map((job) => element("option", { value: job.id }, `${job.name} (${job.status})`)));
  if (jobId) byId("jobs").value = jobId;
  if (before !== jobId) forget();
}

// What belongs to one job.
function forget() { largest.clear(); watched.clear(); forgetCharts(); last = null; }

let isLoading = false, isStale = false;

async function load() {
  if (isLoading) { isStale = true; return; }
  isLoading = true;
  try {
    if (jobId === null || !isLive || jobs.length > 1) choose((await get("jobs")).jobs);
    if (jobId !== null) {
      last = await get(`jobs/${jobId}/page`);
      head(last.job);
      await draw();
    }
    if (byId("message").textContent.startsWith(UNREAD)) say("");
    document.body.dataset.loaded = "yes";
  } catch (error) {
    if (!isLost) say(`${UNREAD} (${error.message}).`);
    setTimeout(load, AGAIN_MS);
  } finally {
    isLoading = false;
    if (isStale) { isStale = false; load(); }
  }
}

function say(text) { if (byId("message").textContent !== text) byId("message").textContent = text; }

function listen() {
  const events = new EventSource("api/events");
  events.onmessage = () => { if (isLost) { isLost = false; say(""); } load(); };
  events.onerror = () => { isLost = true; say("The connection to the job's program is lost; what is shown is the last that was heard."); };
}

// --- actions ----------------------------------------------------------------------------------------

const post = (path) => fetch("api/" + path,
  { method: "POST", credentials: "same-origin", headers: { "X-Action-Token": session.action_token } });

async function act(action) {
  byId("ask-text").textContent = QUESTIONS[action];
  const dialog = byId("ask");
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  if (dialog.returnValue !== "yes") return;
  try {
    say((await (await post(`jobs/${jobId}/${action}`)).json()).message);
  } catch (error) {
    say(`The job was not told (${error.message}).`);
  }
}

// Do what a click on an element with data asks for.
function clickedOn({ target }) {
  clicked(target);
  if (target.dataset.largest !== undefined) findLargest(target.dataset.largest);
  if (target.dataset.threads !== undefined) askThreads(target.dataset);
  const stream = target.dataset.stream;
  if (stream === undefined) return;
  if (!watched.delete(stream)) watched.add(stream);
  tellSample(stream);
  load();
}

async function begin() {
  onTableChange(drawNow);
  listenToCharts(byId("overview"), drawNow);
  window.addEventListener("hashchange", drawNow);
  byId("main").addEventListener("click", clickedOn);
  byId("jobs").addEventListener("change", (event) => { jobId = event.target.value; forget(); load(); });
  setInterval(() => { if (isLive) watched.forEach(tellSample); }, SAMPLE_AGAIN_MS);
  for (const id of ["logs-contains", "logs-slot", "logs-level"]) byId(id).addEventListener("input", drawNow);
  document.querySelector(".filter").addEventListener("submit", (event) => event.preventDefault());
  for (const button of document.querySelectorAll("[data-action]")) {
    button.addEventListener("click", () => act(button.dataset.action));
  }
  try { session = await get("session"); } catch (error) { say(`The page could not begin (${error.message}).`); }
  listen();
  await load();
}

begin();
