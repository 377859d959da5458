"""The tables of the documents, by the name that their place in a page has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from report.charts import Results, file_of, works_of_peers
from report.numbers import asked, shown
from report.programs import (
    BENCHMARKS,
    ENGINES,
    MARKS,
    MEANINGS,
    OPERATORS,
    OURS,
    QUERIES,
    WORKLOADS,
    Mark,
    lower_is_better,
    mark_of,
)
from report.results import Figure, Result

NOT_YET = "Not recorded yet: `make record` does."
PIPELINED = "With the pipelined engine"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return ["", lines[0], "|---" * len(head) + "|", *lines[1:], ""]


def picture(name: str, alt: str) -> list[str]:
    return ["", f"![{alt}](images/{file_of(name)})"]


def missed(results: Results) -> list[tuple[Mark, Figure]]:
    """Return the marks that the worst run misses, each with its figure."""
    seen = ((mark, results[mark.benchmark].figures()[mark.key]) for mark in marks_of(results))
    return [(mark, figure) for mark, figure in seen if not mark.is_met_by(figure.worst)]


def marks_of(results: Results) -> list[Mark]:
    """Return the marks of what is recorded; a run over a part of the work has some of them only."""
    return [
        mark
        for mark in MARKS
        if mark.benchmark in results and mark.key in results[mark.benchmark].runs[0].figures
    ]


# --- conditions --------------------------------------------------------------------------------------------

#: A larger share of all cores that others used before a run is worth naming.
BUSY = 0.05
#: Another number of runs is worth naming.
USUAL_RUNS = 3


def conditions(results: Results) -> list[str]:
    """Return the machines, and the benchmarks that ran there, with arguments, runs and commits."""
    if not results:
        return [NOT_YET]
    machines = _machines(results).items()
    lines = [
        f"- {where}: {', '.join(_condition(results[name]) for name in names)}." for where, names in machines
    ]
    missing = [f"`{name}`" for name in BENCHMARKS if name not in results]
    notes = [f"Not recorded yet: {', '.join(missing)}."] if missing else []
    return [*lines, "", *notes]


def _condition(result: Result) -> str:
    given = result.arguments[len(BENCHMARKS[result.benchmark].always) :]
    arguments = " ".join([*given, "on one core" if result.is_on_one_core else ""]).strip()
    busy = max((run.busy_before for run in result.runs if run.busy_before is not None), default=0.0)
    runs = f"{len(result.runs)} run{'s' if len(result.runs) != 1 else ''}"
    parts = [
        f"`{result.commit[:7]}`",
        *([runs] if len(result.runs) != USUAL_RUNS else []),
        *([arguments] if arguments else []),
    ]
    if busy > BUSY:
        parts.append(f"others used {busy * 100:.0f} % of the cores before")
    return f"`{result.benchmark}` ({', '.join(parts)})"


def _machines(results: Results) -> dict[str, list[str]]:
    """Return the benchmarks that ran on each machine with each set of versions."""
    found: dict[str, list[str]] = {}
    for name, result in results.items():
        found.setdefault(where(result), []).append(name)
    return found


def where(result: Result) -> str:
    """Return the machine and the versions in one line."""
    seen, versions = result.machine, result.versions
    cores = f"{seen['cores']} core{'s' if seen['cores'] != 1 else ''}"
    machine = f"{seen['cpu']} ({seen['architecture']}), {cores}, {seen['memory_gib']} GiB, {seen['os']}"
    software = f"Python {versions['python']}, Java {versions['java']}, PySpark {versions['pyspark']}, "
    return machine + "; " + software + f"PyArrow {versions['pyarrow']}, NumPy {versions['numpy']}"


# --- marks -------------------------------------------------------------------------------------------------


def marks(results: Results) -> list[str]:
    """Return how many marks the worst runs meet; the tables of the benchmarks say which."""
    found = marks_of(results)
    if not found:
        return [NOT_YET]
    met = len(found) - len(missed(results))
    return [f"{met} of {len(found)} marks are met by the worst run."]


def _asked(mark: Mark | None, figure: Figure) -> str:
    """Return the cell of a mark; empty if the figure has none."""
    if mark is None:
        return ""
    return _bound(mark) if mark.is_met_by(figure.worst) else f"{_bound(mark)}: **missed**"


def _bound(mark: Mark) -> str:
    if isinstance(mark.asked, bool):
        return asked(mark.asked)
    return f"{'at most' if lower_is_better(mark.key) else 'at least'} {asked(mark.asked)}"


# --- one benchmark -----------------------------------------------------------------------------------------


def figures(name: str) -> Callable[[Results], list[str]]:
    """Return a function that draws the table of all figures of a benchmark."""

    def draw(results: Results) -> list[str]:
        if name not in results:
            return [NOT_YET]
        head = ["what", "figure", "worst", "median", "asked"]
        return table(head, _figure_rows(results[name]))

    return draw


def _figure_rows(result: Result) -> Iterator[list[str]]:
    """Yield a row for each figure that has a meaning; others are in the results alone."""
    for key, figure in result.figures().items():
        if key in MEANINGS:
            mark = _asked(mark_of(result.benchmark, key), figure)
            yield [MEANINGS[key], f"`{key}`", shown(figure.worst), shown(figure.median), mark]


def keyed_count(results: Results) -> list[str]:
    lines = figures("keyed_count")(results)
    if "keyed_count" in results:
        lines = [*picture("keyed_count", "Count per key, compared with a dict"), *lines]
    return [
        *lines,
        *also(results, "With all processes on one core", "keyed_count_one_core"),
        *also(results, "The stages, from a source of numbers", "keyed_count_stages"),
        *also(results, "The pipelined engine, from the same source", "keyed_count_pipelined"),
    ]


def epoch_cost(results: Results) -> list[str]:
    return [
        *figures("epoch_cost")(results),
        *also(results, PIPELINED, "epoch_cost_pipelined"),
        *also(results, f"{PIPELINED}, without checkpoints", "epoch_cost_without"),
    ]


def kafka(results: Results) -> list[str]:
    name = "kafka_pipelined"
    return [*figures("kafka")(results), *also(results, f"{PIPELINED}, a checkpoint every 200 ms", name)]


def latency(results: Results) -> list[str]:
    result = results.get("peers_latency")
    seen = {} if result is None else result.figures()
    rows = [[text, *cells] for engine, text in ENGINES.items() if (cells := _latencies(seen, engine))]
    head = ["beside peers, worst run", "p50, ms", "p99, ms", "max, ms"]
    return [*figures("latency")(results), "", *(table(head, rows) if rows else [NOT_YET])]


def _latencies(seen: dict[str, Figure], engine: str) -> list[str]:
    """Return the cells of an engine; none if it was not measured."""
    prefix = "" if engine == OURS else f"{engine}_"
    keys = (f"{prefix}latency_{figure}_ms" for figure in ("p50", "p99", "max"))
    return [shown(seen[key].worst) for key in keys if key in seen]


def also(results: Results, under: str, name: str) -> list[str]:
    """Return the table of one more benchmark, below a line that says what is different."""
    return ["", f"{under}:", "", *figures(name)(results)]


def operators(results: Results) -> list[str]:
    if "operators" not in results:
        return [NOT_YET]
    columns = ["records/s (median)", "of the count, worst", "median", "asked"]
    head, names = ["operator", *columns], ["operators"]
    if "operators_pipelined" in results:
        head, names = [*head, "pipelined", "worst", *columns[2:]], [*names, "operators_pipelined"]
    rows = [
        [text, *(cell for name in names for cell in _operator_cells(results[name], which))]
        for which, text in OPERATORS.items()
        if f"{which}_records_per_s" in results["operators"].figures()
    ]
    return [
        *picture("operators", "Rates of operators, compared with a ValueState count"),
        *table(head, rows),
    ]


def _operator_cells(result: Result, which: str) -> list[str]:
    """Return what a benchmark says of an operator."""
    seen = result.figures()
    rate, ratio = seen.get(f"{which}_records_per_s"), seen.get(f"ratio_{which}")
    cells = ["" if rate is None else shown(rate.median)]
    if ratio is None:
        return [*cells, "", "", ""]
    bound = _asked(mark_of(result.benchmark, f"ratio_{which}"), ratio)
    return [*cells, shown(ratio.worst), shown(ratio.median), bound]


def nexmark(results: Results) -> list[str]:
    if "nexmark" not in results:
        return [NOT_YET]
    seen = results["nexmark"].figures()
    rows = [_query_row(number, seen) for number in QUERIES if f"q{number}_right" in seen]
    head = ["query", "", "records/s per core, worst", "median"]
    return [*picture("nexmark", "Nexmark, records/s per core"), *table(head, rows)]


def _query_row(number: int, seen: dict[str, Figure]) -> list[str]:
    rate = seen[f"q{number}_records_per_s_per_core"]
    name = QUERIES[number] if seen[f"q{number}_right"].worst else f"{QUERIES[number]}: **wrong**"
    return [str(number), name, shown(rate.worst), shown(rate.median)]


# --- peers -------------------------------------------------------------------------------------------------


def peers(results: Results) -> list[str]:
    works = works_of_peers(results)
    if not works:
        return [NOT_YET]
    rows = [row for work, result in works.items() for row in _workload_rows(work, result)]
    head = ["work", "engine", "records/s (median)", "pyflinkstate is times as fast, worst", "median", "asked"]
    versions = [name for result in works.values() for name in result.runs[-1].figures["engines"].values()]
    missing = [title for work, title in WORKLOADS.items() if work not in works]
    return [
        *picture("peers", "The same work by several engines, records/s"),
        *table(head, rows),
        f"Versions: {'; '.join(dict.fromkeys(versions))}.",
        *([f"Not recorded yet: {', '.join(missing)}."] if missing else []),
    ]


def _workload_rows(workload: str, result: Result) -> Iterator[list[str]]:
    seen = result.figures()
    for engine, name in ENGINES.items():
        rate = seen.get(f"{workload}_{engine}_records_per_s")
        if rate is not None:
            key = f"{workload}_times_{engine}"
            cells = _times_cells(mark_of(result.benchmark, key), seen.get(key))
            yield [WORKLOADS[workload], name, shown(rate.median), *cells]


def _times_cells(mark: Mark | None, times: Figure | None) -> list[str]:
    if times is None:
        return ["", "", ""]
    return [shown(times.worst), shown(times.median), _asked(mark, times)]


# --- README ------------------------------------------------------------------------------------------------


def readme(results: Results) -> list[str]:
    """Return the short table, with its conditions."""
    rows = [[text, cell] for text, make in _SHORT if (cell := make(results))]
    if not rows:
        return [NOT_YET]
    machines = "; ".join(where(results[names[0]]) for names in _machines(results).values())
    runs = " or ".join(str(n) for n in sorted({len(result.runs) for result in results.values()}))
    commits = ", ".join(sorted({f"`{result.commit[:7]}`" for result in results.values()}))
    return [
        *table(["", "worst run"], rows),
        f"Conditions: {machines}; commit {commits}; {runs} runs of each benchmark, the worst counts.",
    ]


def _cell(results: Results, benchmark: str, key: str) -> str:
    """Return the worst of a figure; empty if it was not recorded."""
    result = results.get(benchmark)
    figure = result.figures().get(key) if result else None
    return shown(figure.worst) if figure else ""


def _one(benchmark: str, key: str, unit: str = "{}") -> Callable[[Results], str]:
    def make(results: Results) -> str:
        cell = _cell(results, benchmark, key)
        return cell and unit.format(cell)

    return make


def _several(benchmark: str, keys: dict[str, str]) -> Callable[[Results], str]:
    """Return a function that makes a cell of several figures, each with a word before it."""
    return lambda results: _with_words({text: _cell(results, benchmark, key) for text, key in keys.items()})


def _with_words(cells: dict[str, str]) -> str:
    return ", ".join(f"{text} {cell}" for text, cell in cells.items() if cell)


def _against(engine: str) -> Callable[[Results], str]:
    def make(results: Results) -> str:
        cells = {
            text: _cell(results, f"peers_{work}", f"{work}_times_{engine}")
            for work, text in WORKLOADS.items()
        }
        return _with_words(cells)

    return make


def _queries(results: Results) -> str:
    result = results.get("nexmark")
    if result is None:
        return ""
    rates = [f.worst for key, f in result.figures().items() if key.endswith("_per_core")]
    return f"{shown(min(rates))} to {shown(max(rates))}" if rates else ""


def _pauses(results: Results) -> str:
    pauses = [_cell(results, "snapshot", key) for key in ("sync_ms_1m", "sync_ms_4m")]
    return f"{' / '.join(pauses)} ms" if all(pauses) else ""


_SHORT: list[tuple[str, Callable[[Results], str]]] = [
    (
        "count per key with a `ValueState`, no checkpoints, compared with a dict in `mapPartitions`",
        _one("keyed_count", "ratio_no_checkpoint", "{} times its rate"),
    ),
    (
        "the same with an incremental checkpoint every second",
        _one("keyed_count", "ratio_with_checkpoint", "{} times its rate"),
    ),
    *(
        (f"times as fast as {name}", _against(engine))
        for engine, name in ENGINES.items()
        if engine not in (OURS, "dict")
    ),
    (
        "rate of other operators, compared with that count",
        _several(
            "operators",
            {
                "time to live": "ratio_ttl",
                "a timer for each record": "ratio_timers",
                "tumbling windows": "ratio_tumbling",
                "sessions": "ratio_session",
            },
        ),
    ),
    ("15 Nexmark queries, records/s per core", _queries),
    (
        "read-modify-write through `ValueState`, compared with a plain dict in the same loop",
        _one("state_map", "rmw_value_state_ratio", "{} times its time"),
    ),
    (
        "memory of an entry in addition to its key and value",
        _one("state_map", "bytes_per_entry", "{} bytes"),
    ),
    (
        "pause for a snapshot of 1 million / 4 million entries",
        _pauses,
    ),
    ("snapshot written, entries/s", _one("snapshot", "write_entries_per_s")),
    ("snapshot restored, entries/s", _one("snapshot", "restore_entries_per_s")),
    (
        "an epoch of 1,000 records over 2 million keys, with its checkpoint",
        _one("epoch_cost", "epoch_p50_ms", "{} ms"),
    ),
]

#: The benchmarks whose figures are a plain table.
_PLAIN = (
    "dataframe",
    "state_map",
    "snapshot",
    "page_cost",
    "recovery",
    "state_access",
    "live_state",
    "sinks",
    "disk_state",
)
#: How each part of the documents is drawn.
PARTS: dict[str, Callable[[Results], list[str]]] = {
    "readme": readme,
    "conditions": conditions,
    "marks": marks,
    "keyed_count": keyed_count,
    "epoch_cost": epoch_cost,
    "kafka": kafka,
    "latency": latency,
    "operators": operators,
    "nexmark": nexmark,
    "peers": peers,
    **{name: figures(name) for name in _PLAIN},
}
