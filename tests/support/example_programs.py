"""The examples as tests run them: their samples, and what comes out of them by plain Python."""

from __future__ import annotations

import string
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from pyflinkstate.datastream import DataStream, MapFunction

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import deduplication  # noqa: E402 - they lie among the examples
import fraud_rules  # noqa: E402
import joining_streams  # noqa: E402
import retail as retail  # noqa: E402
import savepoint_migration as savepoint_migration  # noqa: E402
import session_windows  # noqa: E402
import structured_streaming as structured_streaming  # noqa: E402
import top_n  # noqa: E402
import word_count  # noqa: E402
from made_up_retail import make_days as make_days  # noqa: E402
from retail import Line  # noqa: E402


@attrs.frozen
class Example:
    """An example with the records of its sources.

    Attributes:
        name: what the test is called.
        build: makes its stream from as many as there are sources.
        inputs: the small data of each source.
        expected: computes the output from the same records, by plain Python.
        program: the module whose ``main`` prints that.
        of_lines: makes the first source's records from invoice lines, where it can read those.
        of_line: does the same in the expectation, line by line.
    """

    name: str
    build: Callable[..., DataStream]
    inputs: tuple[list[Any], ...]
    expected: Callable[..., Iterable[Any]]
    program: str | None
    of_lines: Callable[[DataStream], DataStream] | None = None
    of_line: Callable[[Line], Iterable[Any]] | None = None

    def __str__(self) -> str:
        return self.name


class Poisoned(MapFunction):
    """Passes records on, and raises for one of them: the first time only, in whichever process."""

    def __init__(self, fatal: Any, marker: Path) -> None:
        self.fatal = fatal
        self.marker = marker

    def map(self, value: Any) -> Any:
        if value == self.fatal and not self.marker.exists():
            self.marker.touch()
            raise LookupError(f"cannot stand {value!r}")
        return value


# --- the same by plain Python ---------------------------------------------------------------------


def count_words(texts: list[str]) -> Iterator[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for text in texts:
        letters = (char if char in string.ascii_letters + "'" else " " for char in text)
        for word in "".join(letters).lower().split():
            counts[word] += 1
            yield word, counts[word]


def find_visits(events: list[session_windows.Event]) -> Iterator[session_windows.Visit]:
    by_user = defaultdict(list)
    for event in events:
        by_user[event.user].append(event.time_ms)
    for user, times in by_user.items():
        times.sort()
        begins = [n for n, time in enumerate(times) if n == 0 or time - times[n - 1] > session_windows.GAP_MS]
        for begin, end in zip(begins, [*begins[1:], len(times)], strict=True):
            yield session_windows.Visit(user, times[begin], times[end - 1], end - begin)


def find_alerts(
    payments: list[fraud_rules.Payment], rules: list[fraud_rules.Rule]
) -> Iterator[fraud_rules.Alert]:
    last = {rule.name: rule for rule in rules}
    so_far = defaultdict(list)
    for payment in payments:
        so_far[payment.card].append(payment)
        for rule in last.values():
            if rule.limit_cents is None:
                continue
            since = payment.time_ms - rule.minutes * 60_000
            spent = sum(other.cents for other in so_far[payment.card] if other.time_ms > since)
            if spent > rule.limit_cents:
                yield fraud_rules.Alert(rule.name, payment.card, payment.time_ms, spent)


def join(
    orders: list[joining_streams.Order], payments: list[joining_streams.Payment]
) -> Iterator[joining_streams.Sale | joining_streams.Order | joining_streams.Payment]:
    paid = {payment.number: payment for payment in payments}
    for order in orders:
        payment = paid.pop(order.number, None)
        if payment is not None and abs(payment.time_ms - order.time_ms) <= 15 * 60_000:
            yield joining_streams.Sale(order.number, order.item, payment.cents)
        else:
            yield order
            if payment is not None:
                yield payment
    yield from paid.values()


def rank(sales: list[top_n.Sale]) -> Iterator[top_n.Ranked]:
    sold: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for sale in sales:
        sold[sale.country, sale.time_ms // 86_400_000][sale.product] += sale.quantity
    for (country, day), products in sold.items():
        best = sorted(products, key=lambda product: (-products[product], product))
        for place, product in enumerate(best[:3], start=1):
            yield top_n.Ranked(country, day * 86_400_000, place, product, products[product])


def sales_and_what_is_left(orders: DataStream, payments: DataStream) -> DataStream:
    """Return the stream of the join and its side outputs as one."""
    sales = joining_streams.build(orders, payments)
    tags = joining_streams.UNPAID, joining_streams.UNKNOWN
    return sales.union(*(sales.get_side_output(tag) for tag in tags))


# --- all of them ----------------------------------------------------------------------------------


def _event(line: Line) -> Iterator[session_windows.Event]:
    if line.customer != "":
        yield session_windows.Event(line.customer, line.time_ms)


def _payment(line: Line) -> Iterator[fraud_rules.Payment]:
    if line.customer != "" and line.quantity > 0 and line.cents != 0:
        yield fraud_rules.Payment(line.customer, line.time_ms, line.cents)


def _sale(line: Line) -> Iterator[top_n.Sale]:
    yield top_n.Sale(line.country, line.time_ms, line.description, line.quantity)


BY_LINES = [
    Example(
        "word count",
        word_count.build,
        (word_count.SAMPLE,),
        count_words,
        "word_count",
        lambda lines: lines.map(lambda line: line.description),
        lambda line: [line.description],
    ),
    Example(
        "sessions by timers",
        session_windows.build,
        (session_windows.SAMPLE,),
        find_visits,
        "session_windows",
        session_windows.events_of,
        _event,
    ),
    Example(
        "sessions by windows",
        session_windows.build_with_windows,
        (session_windows.SAMPLE,),
        find_visits,
        None,
        session_windows.events_of,
        _event,
    ),
    Example(
        "deduplication",
        deduplication.build,
        (deduplication.SAMPLE,),
        lambda events: list(dict.fromkeys(events)),
        "deduplication",
        lambda lines: lines,
        lambda line: [line],
    ),
    Example(
        "fraud rules",
        fraud_rules.build,
        (fraud_rules.SAMPLE, fraud_rules.RULES),
        find_alerts,
        "fraud_rules",
        fraud_rules.payments_of,
        _payment,
    ),
    Example("top n", top_n.build, (top_n.SAMPLE,), rank, "top_n", top_n.sales_of, _sale),
]
ALL = [
    *BY_LINES,
    Example(
        "join",
        sales_and_what_is_left,
        (joining_streams.ORDERS, joining_streams.PAYMENTS),
        join,
        "joining_streams",
    ),
]
