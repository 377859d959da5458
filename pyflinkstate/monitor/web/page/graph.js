// The graph of a job: operators as links to what is known of each, and what goes from one to the next.

import { element } from "./elements.js";
import { most, rate, short } from "./units.js";

const BOX = { width: 200, height: 56, gapX: 150, gapY: 22 }, EDGE = 8;
// From this many ms of a second on, a subtask is slow.
const SLOW_MS_PER_S = 800;

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

function placesOf(job) {
  const column = columnsOf(job), rows = [], places = new Map();
  for (const operator of job.operators) {
    const x = column.get(operator.id);
    rows[x] = (rows[x] || 0) + 1;
    places.set(operator.id, [EDGE + x * (BOX.width + BOX.gapX), EDGE + (rows[x] - 1) * (BOX.height + BOX.gapY)]);
  }
  return { places, width: 2 * EDGE + rows.length * (BOX.width + BOX.gapX) - BOX.gapX,
    height: 2 * EDGE + Math.max(...rows.map((count) => count || 0), 1) * (BOX.height + BOX.gapY) - BOX.gapY };
}

// What an edge does: the functions on the way, the side output, or how records are spread.
function nameOf(edge, target) {
  const side = edge.side_output ? `side output ${edge.side_output}` : "";
  return [side, edge.chain.join(" → ")].filter(Boolean).join(": ")
    || (target.kind === "keyed" ? "by key" : target.kind === "exchange" ? "exchange" : "forward");
}

// The subtask that is slow, or -1.
export function slowOf(operator) {
  const place = most(operator.busy_ms_per_s);
  return place >= 0 && operator.busy_ms_per_s[place] > SLOW_MS_PER_S ? place : -1;
}

function edges(job, places) {
  const operators = new Map(job.operators.map((operator) => [operator.id, operator]));
  return job.edges.filter((edge) => places.has(edge.source) && places.has(edge.target)).map((edge) => {
    const [x1, y1] = places.get(edge.source), [x2, y2] = places.get(edge.target);
    const from = [x1 + BOX.width, y1 + BOX.height / 2], to = [x2, y2 + BOX.height / 2], middle = (from[0] + to[0]) / 2;
    // Behind the middle of the line, where neither edges of one source nor those into one target meet.
    const [x, y] = [from[0] + 0.576 * (to[0] - from[0]), from[1] + 0.648 * (to[1] - from[1]) - 5];
    const name = nameOf(edge, operators.get(edge.target));
    return element("g", { class: "edge" }, element("title", null, name),
      element("path", { d: `M${from} C${middle},${from[1]} ${middle},${to[1]} ${to}` }),
      element("text", { class: "small", x, y, "text-anchor": "middle" }, short(name, 20)));
  });
}

function box(operator, [x, y], isRunning, isChosen) {
  const flow = operator.records_in_per_s ?? operator.records_out_per_s, busiest = most(operator.busy_ms_per_s);
  const facts = [operator.kind + (operator.parallelism ? ` × ${operator.parallelism}` : "")];
  if (isRunning && flow !== null && flow !== undefined) facts.push(rate(flow));
  if (isRunning && busiest >= 0) facts.push(`${Math.round(operator.busy_ms_per_s[busiest] / 10)} % busy`);
  return element("svg-a", { href: `#/graph/${encodeURIComponent(operator.id)}`,
    class: [isChosen ? "chosen" : "", isRunning && slowOf(operator) >= 0 ? "slow" : ""].join(" ").trim(),
    "aria-label": `Operator ${operator.name}: ${facts.join(", ")}` },
  element("title", null, operator.name), element("rect", { x, y, width: BOX.width, height: BOX.height, rx: 5 }),
  element("text", { x: x + 10, y: y + 22 }, short(operator.name, 24)),
  element("text", { class: "small", x: x + 10, y: y + 42 }, facts.join(", ")));
}

export function graph(job, isRunning, chosen) {
  const { places, width, height } = placesOf(job);
  return element("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "Graph of the job" },
    element("svg", { class: "graph", role: "group", width, height, viewBox: `0 0 ${width} ${height}`,
      "aria-label": "The operators and how records go from one to the next" }, edges(job, places),
    job.operators.map((operator) => box(operator, places.get(operator.id), isRunning, operator.id === chosen))));
}
