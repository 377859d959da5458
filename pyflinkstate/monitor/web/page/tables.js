// Tables that scroll inside themselves, are sorted by a click on a column, and have pages.

import { element } from "./elements.js";
import { number } from "./units.js";

const ROWS_OF_PAGE = 25;

// By caption without numbers: the column that a table is sorted by, the direction, and the page.
const views = new Map();
let changed = () => {};

// Say what draws the page again after a click.
export function onTableChange(draw) { changed = draw; }

// A column of numbers: its title, its value in a row, and how that is shown.
export const numeric = (title, value, shown = number) => [title, (row) => shown(value(row)), "number", value];

// Columns are [title, shown of a row, class, value to sort by]; the first one is the header of its row. A
// column without a value to sort by is sorted by what it shows, if that is a text. False stands for no column.
export function table(caption, given, rows, rowClass) {
  const columns = given.filter(Boolean);
  const view = viewOf(caption.replace(/\d[\d,.]*/g, "#"));
  const sorted = view.column === null || !columns[view.column] ? rows : sortedBy(columns[view.column], rows, view.isDown);
  const pages = Math.max(1, Math.ceil(rows.length / ROWS_OF_PAGE)), page = Math.min(view.page, pages - 1);
  const shown = sorted.slice(page * ROWS_OF_PAGE, (page + 1) * ROWS_OF_PAGE);
  const head = columns.map(([title, , kind], n) => element("th", { scope: "col", class: kind,
    "aria-sort": view.column === n ? (view.isDown ? "descending" : "ascending") : null },
  element("button", { type: "button", class: "sort", "data-sort": n, "data-table": view.name },
    title, view.column === n ? (view.isDown ? " ▾" : " ▴") : "")));
  const body = shown.map((row) => element("tr", { class: rowClass ? rowClass(row) : null }, columns.map(([, value, kind], n) =>
    n === 0 ? element("th", { scope: "row", class: kind }, value(row)) : element("td", { class: kind }, value(row)))));
  return element("div", { class: "table" },
    element("div", { class: "wide", role: "region", tabindex: "0", "aria-label": caption },
      element("table", null, element("caption", null, caption), element("thead", null, element("tr", null, head)),
        element("tbody", null, body))),
    pages > 1 ? pager(view, page, pages, rows.length) : null);
}

function viewOf(name) {
  if (!views.has(name)) views.set(name, { name, column: null, isDown: false, page: 0 });
  return views.get(name);
}

function pager(view, page, pages, count) {
  const turn = (to, text, label) => element("button", { type: "button", "data-page": to, "data-table": view.name,
    "aria-label": label, disabled: to < 0 || to >= pages ? "" : null }, text);
  return element("p", { class: "pager" }, turn(page - 1, "‹", "Previous page"),
    `${page * ROWS_OF_PAGE + 1}–${Math.min(count, (page + 1) * ROWS_OF_PAGE)} of ${count}`, turn(page + 1, "›", "Next page"));
}

function sortedBy([, shown, , by], rows, isDown) {
  const value = (row) => {
    const found = by ? by(row) : shown(row);
    return typeof found === "object" ? "" : found ?? "";
  };
  const keyed = rows.map((row, n) => [value(row), n, row]);
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true }));
  keyed.sort(([a, n], [b, m]) => (isDown ? compare(b, a) : compare(a, b)) || n - m);
  return keyed.map(([, , row]) => row);
}

// Sort a table or turn its page, if that is what was clicked.
export function clicked(target) {
  const button = target.closest("[data-table]");
  if (button === null) return;
  const view = viewOf(button.dataset.table);
  if (button.dataset.page !== undefined) view.page = Number(button.dataset.page);
  else {
    const column = Number(button.dataset.sort);
    // Numbers begin with the greatest, names with the first; a third click restores the order.
    const isNumber = button.parentNode.classList.contains("number");
    if (view.column !== column) Object.assign(view, { column, isDown: isNumber });
    else if (view.isDown === isNumber) view.isDown = !isNumber;
    else view.column = null;
    view.page = 0;
  }
  changed();
}
