"""Which charts there are."""

from __future__ import annotations

from collections.abc import Callable

from report.numbers import shown
from report.pictures import Bar, Group, chart
from report.programs import ENGINES, OURS, QUERIES, WORKLOADS, mark_of
from report.results import Figure, Result

Results = dict[str, Result]


def worst_bar(result: Result, key: str, label: str) -> tuple[Bar, ...]:
    """Return a bar as long as the worst run, or nothing if the benchmark has no such figure."""
    figure, mark = result.figures().get(key), mark_of(result.benchmark, key)
    if figure is None:
        return ()
    low, high = min(figure.values), max(figure.values)
    asked = mark.asked if mark else None
    return (Bar(label, figure.worst, low, high, shown(figure.worst), asked),)


def keyed_count(results: Results) -> str:
    labels = {"ratio_no_checkpoint": "no checkpoints", "ratio_with_checkpoint": "a checkpoint every second"}
    titles = {"keyed_count": "all cores", "keyed_count_one_core": "everything on one core"}
    groups = [
        Group(title, sum((worst_bar(results[name], key, label) for key, label in labels.items()), ()))
        for name, title in titles.items()
        if name in results
    ]
    return chart("Count per key, compared with a dict", "times the dict, worst run", groups, (1, "dict"))


#: Shorter than in the table.
_OPERATORS = {
    "stateless": "no state",
    "map": "MapState",
    "reducing": "ReducingState",
    "list": "ListState",
    "chain2": "two counts in a row",
    "ttl": "time to live",
    "timers": "a timer for each record",
    "tumbling": "tumbling, aggregate",
    "process_window": "tumbling, ProcessWindowFunction",
    "session": "session, aggregate",
    "sliding": "sliding, aggregate",
}


def operators(results: Results) -> str:
    result = results["operators"]
    bars = (worst_bar(result, f"ratio_{name}", text) for name, text in _OPERATORS.items())
    group = Group("", sum(bars, ()))
    unit = "times the ValueState count, worst run"
    return chart("Rates of operators", unit, [group], (1, "ValueState count"))


def nexmark(results: Results) -> str:
    bars = (
        worst_bar(results["nexmark"], f"q{number}_records_per_s_per_core", f"{number}: {text}")
        for number, text in QUERIES.items()
    )
    return chart("Nexmark", "records/s per core, worst run", [Group("", sum(bars, ()))])


def works_of_peers(results: Results) -> dict[str, Result]:
    """Return the results of peers by work; each work is recorded alone."""
    return {work: results[f"peers_{work}"] for work in WORKLOADS if f"peers_{work}" in results}


def peers(results: Results) -> str:
    groups = []
    for work, result in works_of_peers(results).items():
        figures = result.figures()
        keys = {engine: f"{work}_{engine}_records_per_s" for engine in ENGINES}
        bars = [_peer_bar(engine, figures[key]) for engine, key in keys.items() if key in figures]
        groups.append(Group(WORKLOADS[work], tuple(bars)))
    return chart("The same work by several engines", "records/s, median of the runs", groups)


def _peer_bar(engine: str, rate: Figure) -> Bar:
    """Return a bar as long as the median: the worst run of a peer would be in our favour."""
    low, high = min(rate.values), max(rate.values)
    return Bar(ENGINES[engine], rate.median, low, high, shown(rate.median), is_ours=engine == OURS)


#: The charts by name, which is that of a benchmark, or the beginning of the names of several.
CHARTS: dict[str, Callable[[Results], str]] = {
    "keyed_count": keyed_count,
    "operators": operators,
    "nexmark": nexmark,
    "peers": peers,
}


def in_chart(chart_name: str, results: Results) -> list[str]:
    """Return the names of the results that a chart shows."""
    return [name for name in results if name == chart_name or name.startswith(f"{chart_name}_")]


def file_of(name: str) -> str:
    """Return the name of the file of a benchmark's chart."""
    return f"benchmark-{name.replace('_', '-')}.svg"


def drawn(results: Results) -> dict[str, str]:
    """Return the files of all charts that have results."""
    return {file_of(name): draw(results) for name, draw in CHARTS.items() if in_chart(name, results)}
