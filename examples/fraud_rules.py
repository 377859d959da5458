"""Fraud rules: payments checked against rules that come as a stream of their own.

    python examples/fraud_rules.py [--input DIR] [--parallelism N] [--checkpoint-dir DIR] [--restore latest]

Rules are broadcast: every subtask gets all of them and keeps them in broadcast state. Payments have keys:
what a card has spent lately is keyed state. With --input a payment is a line of an invoice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import command_line
from retail import Line, invoice_lines

from pyflinkstate.common import Types
from pyflinkstate.datastream import DataStream, KeyedBroadcastProcessFunction, RuntimeContext
from pyflinkstate.datastream.state import ListStateDescriptor, MapStateDescriptor

MINUTE_MS = 60_000


class Rule(NamedTuple):
    """No card spends more than ``limit_cents`` in ``minutes``. Without limit the rule is withdrawn."""

    name: str
    minutes: int
    limit_cents: int | None


class Payment(NamedTuple):
    card: str
    time_ms: int
    cents: int


class Alert(NamedTuple):
    rule: str
    card: str
    time_ms: int
    spent_cents: int


RULES = [
    Rule("much in a minute", minutes=1, limit_cents=500_00),
    Rule("much in an hour", minutes=60, limit_cents=1200_00),
    Rule("anything at all", minutes=1, limit_cents=0),
    Rule("anything at all", minutes=1, limit_cents=None),
]
#: A card that is used now and then, one that is used often, and one that was stolen.
SAMPLE = sorted(
    [
        *(Payment("now and then", minute * MINUTE_MS, 20_00) for minute in range(0, 120, 30)),
        *(Payment("often", minute * MINUTE_MS, 90_00) for minute in range(0, 120, 5)),
        *(Payment("stolen", minute * MINUTE_MS, 400_00) for minute in (60, 60, 60, 61, 61, 110)),
    ],
    key=lambda payment: payment.time_ms,
)

RULES_BY_NAME = MapStateDescriptor("rules", Types.STRING(), Types.PICKLED_BYTE_ARRAY())


class CheckRules(KeyedBroadcastProcessFunction):
    """Adds up what a card has spent within the time of each rule."""

    def open(self, runtime_context: RuntimeContext) -> None:
        payment = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.recent = runtime_context.get_list_state(ListStateDescriptor("recent", payment))

    def process_broadcast_element(self, value: Rule, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        rules = ctx.get_broadcast_state(RULES_BY_NAME)
        if value.limit_cents is None:
            rules.remove(value.name)
        else:
            rules.put(value.name, value)

    def process_element(
        self, value: Payment, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Alert]:
        rules = [rule for _, rule in ctx.get_broadcast_state(RULES_BY_NAME).items()]
        longest = max((rule.minutes for rule in rules), default=0)
        recent = [
            (time_ms, cents)
            for time_ms, cents in [*self.recent, (value.time_ms, value.cents)]
            if time_ms > value.time_ms - longest * MINUTE_MS
        ]
        self.recent.update(recent)
        for rule in rules:
            since = value.time_ms - rule.minutes * MINUTE_MS
            spent = sum(cents for time_ms, cents in recent if time_ms > since)
            if spent > rule.limit_cents:
                yield Alert(rule.name, value.card, value.time_ms, spent)


def build(payments: DataStream, rules: DataStream) -> DataStream:
    """Return an alert for each payment by which a card breaks a rule."""
    cards = payments.key_by(lambda payment: payment.card, key_type=Types.STRING())
    return cards.connect(rules.broadcast(RULES_BY_NAME)).process(CheckRules())


def payments_of(lines: DataStream) -> DataStream:
    """Return a payment for each invoice line of a known customer that is no return."""

    def payment_of(line: Line) -> Iterator[Payment]:
        if line.customer and line.cents > 0:
            yield Payment(line.customer, line.time_ms, line.cents)

    return lines.flat_map(payment_of)


def main() -> None:
    args = command_line.parse("Check payments against rules.")
    env = command_line.environment(args)
    if args.input is None:
        payments = env.from_collection(SAMPLE)
    else:
        payments = payments_of(invoice_lines(env, args.input, args.days))
    build(payments, env.from_collection(RULES)).print()
    env.execute("fraud rules")


if __name__ == "__main__":
    main()
