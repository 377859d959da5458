// The page of a job: one tab at a time is drawn, of the last answer. All addresses are relative, so that it works
// behind a proxy with a prefix.

import { charts, forgetCharts, listenToCharts } from "./charts.js";
import { bars, byId, element, facts, fill, nothing, show } from "./elements.js";
import { graph } from "./graph.js";
import { isRunning, lagOf, noticeOf, sparkOf, statusOf, untilMs } from "./jobs.js";
import { latencyTable, metricTable, operatorTable, sideTable, subtaskTable } from "./operators.js";
import { clicked, numeric, onTableChange, table } from "./tables.js";
import { bytes, decimal, duration, most, number, rate, share, short, spread, time } from "./units.js";

const PHASES = ["planning", "reading", "slots", "finishing", "preparing"];
const AGAIN_MS = 5000;
const UNREAD = "The data could not be read";
const ASK_AGAIN_MS = 1000;
const SAMPLE_AGAIN_MS = 20000;
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
      numeric("Epoch", (e) => e.epoch),
      ["Ended", (e) => time(e.at), "", (e) => e.at],
      numeric("Records", (e) => e.records),
      numeric("Restarts", (e) => e.attempt),
      ...PHASES.map((phase) => numeric(phase, (e) => e.phases_ms[phase], duration)),
      numeric("Commit", (e) => e.commit_ms, duration),
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
      numeric("Id", (c) => c.checkpoint_id),
      ["Kind", kind],
      ["Result", (c) => (c.failure === null ? "completed" : element("span", { class: "bad-text" }, "failed")), "",
        (c) => (c.failure === null ? "completed" : "failed")],
      ["Triggered", (c) => time(c.triggered_ms), "", (c) => c.triggered_ms],
      numeric("Duration", (c) => c.duration_ms, duration),
      numeric("Pause", (c) => c.sync_ms, duration),
      numeric("Asynchronous", (c) => c.async_ms, duration),
      numeric("Written", (c) => c.checkpointed_bytes, bytes),
      numeric("A restore reads", (c) => c.size_bytes, bytes),
      ["Folder, or why it failed", (c) => element("span", { title: c.failure ?? c.uri }, folder(c)), "name", folder],
    ], newest),
    told ? table(`Subtasks in checkpoint ${told.checkpoint_id}`, [
      ["Operator", ([operator]) => operator, "name"],
      numeric("Subtask", ([, n]) => n),
      numeric("Pause", ([, , sync_ms]) => sync_ms, duration),
      numeric("Asynchronous", ([, , , async_ms]) => async_ms, duration),
      numeric("Written", ([, , , , , written]) => written, bytes),
      numeric("A restore reads", ([, , , , full]) => full, bytes),
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
      numeric("Entries", (k) => k.entries),
      numeric("Size", (k) => k.bytes, bytes),
    ], found.keys))];
}

const sizeTable = (id, operators) => table(`Bytes of each state in checkpoint ${id}, compressed`, [
  ["Operator", ([name]) => name, "name"],
  ["State", ([, of]) => of, "name"],
  numeric("Size", ([, , size]) => size, bytes),
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

const tellSample = (stream) => tell(`${watched.has(stream) ? "sample" : "unsample"}?stream=${encodeURIComponent(stream)}`);

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
  const message = await tell(`threads?stream=${encodeURIComponent(operator)}&subtask=${subtask}`);
  if (message === null) return;
  say(message);
  byId("logs-slot").value = `${operator}[${subtask}]`;
  location.hash = "#/logs";
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
      numeric("Parallelism", (o) => o.parallelism),
      numeric("Max parallelism", (o) => o.max_parallelism),
      numeric("Memory limit of a slot", (o) => o.memory_limit_bytes, bytes),
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

// Tell the job something; return what its program answers, or say that it was not told and return null.
async function tell(what) {
  try {
    const answer = await fetch(`api/jobs/${jobId}/${what}`,
      { method: "POST", credentials: "same-origin", headers: { "X-Action-Token": session.action_token } });
    return (await answer.json()).message;
  } catch (error) {
    say(`The job was not told (${error.message}).`);
    return null;
  }
}

async function act(action) {
  byId("ask-text").textContent = QUESTIONS[action];
  const dialog = byId("ask");
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  const message = dialog.returnValue === "yes" ? await tell(action) : null;
  if (message !== null) say(message);
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
