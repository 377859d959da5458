"use strict";
// The page of a job. All addresses are relative, so that it works behind a proxy with a prefix. Data becomes
// text nodes and attributes, never markup.

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const PHASES = ["planning", "reading", "slots", "finishing", "preparing"];
const AGAIN_MS = 5000;
const UNREAD = "The data could not be read";
const ASK_AGAIN_MS = 1000;
const SAMPLE_AGAIN_MS = 20000;
const SHOWN_ROWS = 50;
const SHOWN_AT_ONCE = 12;
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

// --- elements ---------------------------------------------------------------------------------------

function element(tag, attributes, ...children) {
  const made = ["svg", "path", "rect", "text", "g", "title"].includes(tag)
    ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "height%") made.dataset.height = value;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) made.append(child.nodeType ? child : String(child));
  }
  return made;
}

// Make `old` what `made` is, and keep what stays the same: focus, open details and scrolled tables.
function become(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) { old.replaceWith(made); style(made); return; }
  if (old.nodeType === Node.TEXT_NODE) { if (old.data !== made.data) old.data = made.data; return; }
  for (const { name } of [...old.attributes]) {
    if (!made.hasAttribute(name) && name !== "open" && name !== "style") old.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (made.dataset && made.dataset.height !== undefined) old.style.height = made.dataset.height + "%";
  fill(old, [...made.childNodes]);
}

function fill(parent, children) {
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
  children.forEach((child, n) => {
    if (n < parent.childNodes.length) become(parent.childNodes[n], child);
    else { parent.append(child); style(child); }
  });
}

// The heights of bars are set here: the policy of the page forbids style attributes.
function style(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  for (const one of [node, ...node.querySelectorAll("[data-height]")]) {
    if (one.dataset && one.dataset.height !== undefined) one.style.height = one.dataset.height + "%";
  }
}

const show = (id, ...children) =>
  fill(byId(id).querySelector(".body"), children.flat(Infinity).filter((child) => child !== null));

// --- numbers ----------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const some = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
const decimal = (value) => (value === null || value === undefined ? "–" : some.format(value));

function bytes(size) {
  if (size === null || size === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return (unit ? some.format(size) : whole.format(size)) + " " + units[unit];
}

function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return some.format(ms) + " ms";
  const seconds = ms / 1000;
  if (seconds < 60) return some.format(seconds) + " s";
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([length]) => seconds >= length);
  const second = parts[Math.min(first + 1, 3)];
  const rest = Math.floor((seconds % parts[first][0]) / second[0]);
  return Math.floor(seconds / parts[first][0]) + " " + parts[first][1] + (first < 3 ? " " + rest + " " + second[1] : "");
}

function time(ms) {
  if (ms === null || ms === undefined) return "–";
  const moment = new Date(ms);
  return isNaN(moment) ? String(ms) : moment.toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC");
}

// --- parts of sections ------------------------------------------------------------------------------

const fact = (name, value) => element("div", null, element("dt", null, name), element("dd", null, value));
const facts = (...pairs) => element("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => fact(name, value)));
const nothing = (text) => element("p", { class: "faint" }, text);

// Columns are [title, value of a row, class]; the first one is the header of its row.
function table(caption, columns, rows, rowClass) {
  const head = columns.map(([title, , kind]) => element("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) => element("tr", { class: rowClass ? rowClass(row) : null }, columns.map(([, value, kind], n) =>
    n === 0 ? element("th", { scope: "row", class: kind }, value(row)) : element("td", { class: kind }, value(row)))));
  return element("div", { class: "wide", role: "region", tabindex: "0", "aria-label": caption },
    element("table", null, element("caption", null, caption), element("thead", null, element("tr", null, head)),
      element("tbody", null, body)));
}

function bars(values, about, marked, most = Math.max(1, ...values)) {
  return element("div", { class: "bars", role: "img", "aria-label": about, title: about },
    values.map((value, n) => element("i", {
      class: n === marked ? "marked" : null, "height%": Math.max(2, (100 * (value ?? 0)) / most).toFixed(1) })));
}

// Shares are told in ms of each second.
const share = (ms) => (ms === null || ms === undefined ? "–" : some.format(ms / 10) + " %");

function most(values) {
  let place = -1;
  values.forEach((value, n) => { if (value !== null && (place < 0 || value > values[place])) place = n; });
  return place;
}

const spread = (values, unit) => values.length
  ? `${values.length} parts, from ${unit(Math.min(...values))} to ${unit(Math.max(...values))}` : "nothing";

// --- the graph --------------------------------------------------------------------------------------

// Each operator stands in the column after the last one that it reads.
function columnsOf(job) {
  const column = new Map(job.operators.map((operator) => [operator.id, 0]));
  for (const operator of job.operators) {
    for (const edge of job.edges) {
      if (edge.source === operator.id && column.has(edge.target)) {
        column.set(edge.target, Math.max(column.get(edge.target), column.get(edge.source) + 1));
      }
    }
  }
  return column;
}

const short = (text, length) => (text.length > length ? text.slice(0, length - 1) + "…" : text);

function graph(job) {
  const WIDTH = 190, HEIGHT = 56, GAP_X = 130, GAP_Y = 18, EDGE = 8;
  const column = columnsOf(job), rows = [], place = new Map();
  for (const operator of job.operators) {
    const x = column.get(operator.id);
    rows[x] = (rows[x] || 0) + 1;
    place.set(operator.id, [EDGE + x * (WIDTH + GAP_X), EDGE + (rows[x] - 1) * (HEIGHT + GAP_Y)]);
  }
  const width = 2 * EDGE + rows.length * (WIDTH + GAP_X) - GAP_X;
  const height = 2 * EDGE + Math.max(...rows.map((count) => count || 0), 1) * (HEIGHT + GAP_Y) - GAP_Y;
  const lines = job.edges.filter((edge) => place.has(edge.source) && place.has(edge.target)).map((edge) => {
    const [x1, y1] = place.get(edge.source), [x2, y2] = place.get(edge.target);
    const from = [x1 + WIDTH, y1 + HEIGHT / 2], to = [x2, y2 + HEIGHT / 2], middle = (from[0] + to[0]) / 2;
    const chain = edge.chain.join(" → ") + (edge.side_output ? ` (side output ${edge.side_output})` : "");
    return element("g", null,
      element("path", { d: `M${from} C${middle},${from[1]} ${middle},${to[1]} ${to}` }),
      chain ? element("text", { class: "small", x: middle, y: (from[1] + to[1]) / 2 - 5, "text-anchor": "middle" },
        short(chain, 20), element("title", null, chain)) : null);
  });
  const boxes = job.operators.map((operator) => {
    const [x, y] = place.get(operator.id);
    const rate = operator.records_in_per_s ?? operator.records_out_per_s;
    return element("g", null,
      element("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 5 }),
      element("text", { x: x + 10, y: y + 22 }, short(operator.name, 24), element("title", null, operator.name)),
      element("text", { class: "small", x: x + 10, y: y + 42 },
        operator.kind + (operator.parallelism ? ` × ${operator.parallelism}` : "") +
        (rate === null || rate === undefined ? "" : `, ${number(rate)}/s`) +
        (most(operator.busy_ms_per_s) < 0 ? "" : `, ${share(operator.busy_ms_per_s[most(operator.busy_ms_per_s)])} busy`)));
  });
  return element("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "Graph of the job" },
    element("svg", { class: "graph", role: "img", width, height, viewBox: `0 0 ${width} ${height}`,
      "aria-label": "The operators and how records go from one to the next; the table below has the same." }, lines, boxes));
}

// --- sections ---------------------------------------------------------------------------------------

function overview(job) {
  const last = job.last_checkpoint, counts = job.checkpoint_counts, failure = job.last_failure;
  const until = job.ended_ms ?? (job.is_live ? Date.now() : job.heard_ms);
  const lag = Object.values(job.watermarks).length ? Math.max(0, until - Math.min(...Object.values(job.watermarks))) : null;
  show("overview",
    facts(
      ["Started", time(job.started_ms)],
      [job.ended_ms || !job.is_live ? "Lasted" : "Uptime", duration(job.started_ms ? until - job.started_ms : null)],
      job.is_live ? null : ["Last heard of", time(job.heard_ms)],
      ["Epoch", number(job.epoch)],
      ["Committed epoch", number(job.committed_epoch)],
      ["Epochs in flight", number(job.epochs_in_flight)],
      ["Restarts", number(job.restarts)],
      ["Runs", number(job.runs)],
      ["Watermark lag", duration(lag)],
      ["Checkpoints", `${number((counts.completed || 0) + (counts.savepoints || 0))} completed, ${number(counts.failed || 0)} failed`],
      ["Last checkpoint", last ? `${last.checkpoint_id}: ${bytes(last.checkpointed_bytes)} written in ${duration(last.duration_ms)}, ` +
        `full size ${bytes(last.size_bytes)}` : "none"],
      job.restored_from ? ["Restored from", job.restored_from] : null,
      job.events_left_out ? ["Events left out", number(job.events_left_out)] : null,
      ["Job id", job.id],
    ),
    failure ? element("p", null, element("strong", { class: "bad-text" }, "Last failure: "),
      `${time(failure.at)}, ${failure.type}` + where(failure), ". ", element("a", { href: "#failures" }, "All failures")) : null,
    job.operators.length ? graph(job) : null,
    operatorTable(job),
    subtaskTable(job),
    latencyTable(job),
    sideTable(job));
}

const where = (failure) =>
  (failure.operator ? `, operator ${failure.operator}` : "") + (failure.key ? `, key ${failure.key}` : "") +
  (failure.record ? `, record ${failure.record}` : "");

function busy(operator) {
  const shares = operator.busy_ms_per_s, slowest = most(shares);
  if (slowest < 0) return "–";
  const about = `${share(shares[slowest])} in subtask ${slowest}` + (shares.length > 1 ? ", the slowest" : "");
  return [shares.length > 1 ? bars(shares, about, slowest, 1000) : null, element("span", null, about)];
}

function subtaskTable(job) {
  const rows = job.operators.flatMap((operator) => {
    const slowest = operator.busy_ms_per_s.length > 1 ? most(operator.busy_ms_per_s) : -1;
    return operator.busy_ms_per_s.map((_, n) => ({ operator, n, isSlowest: n === slowest }));
  });
  if (!rows.length) return null;
  const memory = ({ operator, n }) => {
    const used = operator.memory_bytes[n], limit = operator.memory_limit_bytes;
    if (!used) return "–";
    if (!limit) return bytes(used);
    return [element("meter", { min: 0, max: limit, value: used, high: limit * 0.9, "aria-label": "of its limit" }),
      ` ${bytes(used)} of ${bytes(limit)}`];
  };
  return element("details", null, element("summary", null, `Each subtask (${rows.length})`),
    table("Subtasks in the last seconds", [
      ["Operator", ({ operator }) => operator.name, "name"],
      ["Subtask", ({ n, isSlowest }) => number(n) + (isSlowest ? " (slowest)" : ""), "number"],
      ["Busy", ({ operator, n }) => share(operator.busy_ms_per_s[n]), "number"],
      ["Idle", ({ operator, n }) => share(operator.idle_ms_per_s[n]), "number"],
      ["Backpressured", ({ operator, n }) => share(operator.back_pressured_ms_per_s[n]), "number"],
      ["Records in", ({ operator, n }) => number(operator.subtask_records[n]), "number"],
      ["Memory", memory, "number"],
      ["Pending timers", ({ operator, n }) => number(operator.timers[n]), "number"],
    ], rows, (row) => (row.isSlowest ? "slowest" : null)));
}

function sideTable(job) {
  const rows = job.operators.flatMap((operator) => [
    ...Object.entries(operator.side_outputs).map(([tag, count]) => [operator.name, `side output ${tag}`, count]),
    ...(operator.records_late ? [[operator.name, "late, dropped", operator.records_late]] : []),
  ]);
  return rows.length ? table("Side outputs and late records", [
    ["Operator", ([name]) => name, "name"], ["Where to", ([, to]) => to, "name"],
    ["Records", ([, , count]) => number(count), "number"]], rows) : null;
}

function latencyTable(job) {
  const names = new Map(job.operators.map((operator) => [operator.id, operator.name]));
  const rows = job.operators.flatMap((operator) => Object.entries(operator.latency_ms).map(
    ([source, found]) => ({ operator, source, found })));
  return rows.length ? table("Latency from sources", [
    ["Operator", ({ operator }) => operator.name, "name"], ["From", ({ source }) => names.get(source) ?? source, "name"],
    ["Median", ({ found }) => duration(found.p50), "number"], ["99 %", ({ found }) => duration(found.p99), "number"],
    ["Longest", ({ found }) => duration(found.max), "number"]], rows) : null;
}

function operatorTable(job) {
  const until = job.ended_ms ?? (job.is_live ? Date.now() : job.heard_ms);
  const skews = job.operators.map((operator) => operator.skew ?? 0);
  const worst = Math.max(...skews) >= 1.5 ? Math.max(...skews) : Infinity;
  return table("Operators", [
    ["Name", (o) => o.name, "name"],
    ["Kind", (o) => o.kind],
    ["Parallelism", (o) => o.parallelism ?? "–", "number"],
    ["Records in", (o) => number(o.records_in), "number"],
    ["Records out", (o) => number(o.records_out), "number"],
    ["In/s", (o) => number(o.records_in_per_s), "number"],
    ["Out/s", (o) => number(o.records_out_per_s), "number"],
    ["Watermark lag", (o) => (o.watermark_ms === null ? "–" : duration(Math.max(0, until - o.watermark_ms))), "number"],
    ["Busy by subtask", busy, "busy"],
    ["Backpressure", (o) => share(o.back_pressured_ms_per_s[most(o.back_pressured_ms_per_s)]), "number"],
    ["Records by subtask", (o) => (o.subtask_records.length > 1 ? bars(o.subtask_records, spread(o.subtask_records, number)) : "–")],
    ["Skew", (o) => (o.skew === null ? "–" : decimal(o.skew) + (o.skew >= worst ? " (most)" : "")), "number"],
  ], job.operators, (o) => ((o.skew ?? 0) >= worst ? "slowest" : null));
}

function epochs({ epochs: found }) {
  if (!found.length) { show("epochs", nothing("No epoch has run yet.")); return; }
  const total = (epoch) => PHASES.reduce((sum, phase) => sum + (epoch.phases_ms[phase] || 0), 0);
  const most = Math.max(1, ...found.map(total));
  const said = (epoch) => `Epoch ${epoch.epoch}: ${duration(total(epoch))}, ` +
    PHASES.map((phase) => `${phase} ${duration(epoch.phases_ms[phase])}`).join(", ");
  const columns = found.map((epoch) => element("div", { title: said(epoch) },
    PHASES.map((phase) => element("i", { class: phase, "height%": ((100 * (epoch.phases_ms[phase] || 0)) / most).toFixed(2) }))));
  show("epochs",
    element("ul", { class: "legend" }, PHASES.map((phase) => element("li", null, element("i", { class: phase }), phase))),
    element("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "Timeline of epochs" },
      element("div", { class: "timeline", role: "img", "aria-label":
        `Time of the last ${found.length} epochs, at most ${duration(most)}; the table below has the same.` }, columns)),
    element("details", null, element("summary", null, `Table of epochs (${Math.min(SHOWN_ROWS, found.length)})`),
      table("Epochs, the newest first", [
        ["Epoch", (e) => number(e.epoch), "number"],
        ["Ended", (e) => time(e.at)],
        ["Records", (e) => number(e.records), "number"],
        ["Restarts", (e) => number(e.attempt), "number"],
        ...PHASES.map((phase) => [phase, (e) => duration(e.phases_ms[phase]), "number"]),
        ["Commit", (e) => duration(e.commit_ms), "number"],
      ], found.slice(-SHOWN_ROWS).reverse())));
}

function checkpoints({ checkpoints: found }) {
  if (!found.length) { show("checkpoints", nothing("No checkpoint has been taken yet.")); return; }
  const newest = found.slice(-SHOWN_ROWS).reverse();
  const last = newest.find((one) => one.subtasks.length);
  const rows = (caption, shown) => table(caption, [
      ["Id", (c) => number(c.checkpoint_id), "number"],
      ["Kind", (c) => (c.is_savepoint ? "savepoint" : c.is_incremental ? "incremental" : "full")],
      ["Result", (c) => (c.failure === null ? "completed" : element("span", { class: "bad-text" }, "failed"))],
      ["Triggered", (c) => time(c.triggered_ms)],
      ["Duration", (c) => duration(c.duration_ms), "number"],
      ["Pause", (c) => duration(c.sync_ms), "number"],
      ["Asynchronous", (c) => duration(c.async_ms), "number"],
      ["Written", (c) => bytes(c.checkpointed_bytes), "number"],
      ["Full size", (c) => bytes(c.size_bytes), "number"],
      ["Folder, or why it failed", (c) => element("span", { title: c.failure ?? c.uri }, folder(c)), "name"],
    ], shown);
  const older = newest.slice(SHOWN_AT_ONCE);
  show("checkpoints",
    rows("Checkpoints, the newest first", newest.slice(0, SHOWN_AT_ONCE)),
    older.length ? element("details", null, element("summary", null, `Older checkpoints (${older.length})`),
      rows("Older checkpoints", older)) : null,
    last ? element("details", null,
      element("summary", null, `Each subtask in checkpoint ${last.checkpoint_id}`),
      table(`Subtasks in checkpoint ${last.checkpoint_id}`, [
        ["Operator", ([operator]) => operator, "name"],
        ["Subtask", ([, n]) => number(n), "number"],
        ["Pause", ([, , ms]) => duration(ms), "number"],
        ["Asynchronous", ([, , , ms]) => duration(ms), "number"],
        ["Written", ([, , , , , size]) => bytes(size), "number"],
        ["Full size", ([, , , , size]) => bytes(size), "number"],
      ], last.subtasks)) : null);
}

// The first line of a failure, or the last name of a folder; the pointer shows all of it.
const folder = (c) => short((c.failure ?? (c.uri ?? "–").split("?")[0].split("/").pop()).split("\n")[0], 120);

// The full size of each checkpoint that is known, the oldest first: the bytes that a restore from it reads.
function growth({ checkpoints: found }) {
  const sizes = found.filter((one) => one.failure === null && !one.is_savepoint).map((one) => one.size_bytes);
  if (sizes.length < 2) return null;
  const about = `Full size of the last ${sizes.length} checkpoints, from ${bytes(sizes[0])} to ${bytes(sizes[sizes.length - 1])}` +
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
      ["Entries", (k) => number(k.entries), "number"],
      ["Size", (k) => bytes(k.bytes), "number"],
    ], found.keys))];
}

function state({ checkpoint_id: id, operators }, { checkpoints: history }) {
  const names = Object.keys(operators).sort();
  if (!names.length) { show("state", nothing("The sizes of state are known after the first checkpoint.")); return; }
  const rows = names.flatMap((name) => Object.entries(operators[name].bytes).map(([of, size]) => [name, of, size]));
  show("state",
    growth(history),
    table(`Bytes of each state in checkpoint ${id}, compressed`, [
      ["Operator", ([name]) => name, "name"],
      ["State", ([, of]) => of, "name"],
      ["Size", ([, , size]) => bytes(size), "number"],
    ], rows),
    table("How state is spread", [
      ["Operator", (name) => name, "name"],
      ["By key group", (name) => bars(operators[name].key_groups, spread(operators[name].key_groups, bytes))],
      ["By subtask", (name) => bars(operators[name].subtasks, spread(operators[name].subtasks, bytes))],
    ], names),
    names.map((name) => element("div", { class: "largest" }, largestOf(name))));
}

function metrics({ metrics: found }) {
  if (!found.length) { show("metrics", nothing("The functions of this job keep no metrics.")); return; }
  const value = (m) => (m.kind === "counter" ? number(m.count ?? 0) : m.kind === "gauge" ? decimal(m.total ?? 0)
    : m.kind === "meter" ? `${decimal(m.rate ?? 0)}/s, ${number(m.count ?? 0)} in all`
    : `${number(m.count ?? 0)} values, ${decimal(m.minimum ?? 0)} to ${decimal(m.maximum ?? 0)}`);
  show("metrics", table("Metrics of functions", [
    ["Name", (m) => m.name, "name"], ["Task", (m) => m.task, "name"], ["Kind", (m) => m.kind], ["Value", value, "number"],
  ], found));
}

// --- records of streams: sampled while somebody looks, and asked for again and again -------------------

const watched = new Set();

async function tellSample(stream) {
  const action = watched.has(stream) ? "sample" : "unsample";
  try { await post(`jobs/${jobId}/${action}?stream=${encodeURIComponent(stream)}`); }
  catch (error) { say(`The job was not told (${error.message}).`); }
}

function data({ samples }, { job }) {
  const streams = job.operators.filter((operator) => operator.kind !== "exchange");
  const maySee = session.has_actions && job.is_live;
  const shown = Object.entries(samples).filter(([stream]) => !maySee || watched.has(stream.split(".side_output.")[0]));
  show("data",
    maySee ? [nothing("A few records of each epoch are shown while a stream is switched on. For a sink these are its input."),
      element("div", { class: "choice", role: "group", "aria-label": "Streams" }, streams.map((operator) =>
        element("button", { type: "button", "data-stream": operator.id, "aria-pressed": String(watched.has(operator.id)) },
          `Records of ${operator.name}`)))]
      : nothing("Records can be shown while the job runs, if the page may steer it."),
    shown.map(([stream, { epoch, records }]) => table(`Records of ${stream} in epoch ${epoch}`, [
      ["Record", (record) => record, "name line"]], records)),
    watched.size && !shown.length ? nothing("They come with the next epoch.") : null);
}

// --- lines of slots: read only while somebody has them open ---------------------------------------------

async function logs() {
  if (!byId("logs-open").open || jobId === null) return;
  const asked = new URLSearchParams({ contains: byId("logs-contains").value, slot: byId("logs-slot").value,
    level: byId("logs-level").value });
  const found = await get(`jobs/${jobId}/logs?${asked}`);
  if (!found.lines.length) {
    show("logs", nothing(found.kept ? "No line is like that." : isLive ? "There are no lines yet." : "A job that runs elsewhere, or has run, has none here."));
    return;
  }
  show("logs", table(`${number(found.lines.length)} of ${number(found.matching)} lines that match, of ${number(found.kept)} that are kept, the newest first`, [
    ["Time", ([at]) => time(at)],
    ["Slot", ([, slot]) => slot, "name"],
    ["Level", ([, , level]) => level],
    ["Line", ([, , , line]) => line, "line"],
  ], found.lines.reverse()));
}

function failures({ failures: found }) {
  if (!found.length) { show("failures", nothing("No failure is known.")); return; }
  show("failures", found.slice(-SHOWN_ROWS).reverse().map((failure, n) =>
    element("details", { open: n === 0 ? "" : null },
      element("summary", null, `${time(failure.at)}: ${failure.type}` + where(failure)),
      element("pre", { tabindex: "0" }, failure.message))));
}

const SECTIONS = { job: overview, epochs, checkpoints, state, samples: data, metrics, failures };

// --- data -------------------------------------------------------------------------------------------

async function get(path) {
  const answer = await fetch("api/" + path, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

const KINDS = { RUNNING: "good", FINISHED: "good", RESTARTING: "wait", CANCELED: "wait", FAILED: "bad" };

function head(job) {
  const status = !job.is_live && !job.ended_ms ? "NO END KNOWN" : job.status;
  byId("name").textContent = job.name;
  byId("status").textContent = status;
  byId("status").className = "badge " + (KINDS[status] || "");
  document.title = `${job.name} (${status}) – pyflinkstate`;
  isLive = job.is_live;
  byId("actions").hidden = !(session.has_actions && isLive);
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
function forget() { largest.clear(); watched.clear(); }

let isLoading = false, isStale = false;

async function load() {
  if (isLoading) { isStale = true; return; }
  isLoading = true;
  try {
    if (jobId === null || !isLive || jobs.length > 1) choose((await get("jobs")).jobs);
    if (jobId !== null) {
      const found = await get(`jobs/${jobId}/page`);
      head(found.job);
      for (const [name, section] of Object.entries(SECTIONS)) section(found[name], found);
      await logs();
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

async function begin() {
  byId("jobs").addEventListener("change", (event) => { jobId = event.target.value; forget(); load(); });
  byId("state").addEventListener("click", (event) => {
    if (event.target.dataset.largest !== undefined) findLargest(event.target.dataset.largest);
  });
  byId("data").addEventListener("click", (event) => {
    const stream = event.target.dataset.stream;
    if (stream === undefined) return;
    if (!watched.delete(stream)) watched.add(stream);
    tellSample(stream);
    load();
  });
  setInterval(() => { if (isLive) watched.forEach(tellSample); }, SAMPLE_AGAIN_MS);
  byId("logs-open").addEventListener("toggle", load);
  for (const id of ["logs-contains", "logs-slot", "logs-level"]) byId(id).addEventListener("input", load);
  document.querySelector(".filter").addEventListener("submit", (event) => event.preventDefault());
  for (const button of document.querySelectorAll("[data-action]")) {
    button.addEventListener("click", () => act(button.dataset.action));
  }
  try { session = await get("session"); } catch (error) { say(`The page could not begin (${error.message}).`); }
  listen();
  await load();
}

begin();
