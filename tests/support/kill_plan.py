"""What happens in a kill round, as its seed draws it."""

from __future__ import annotations

import random

import attrs

#: What the slots of some rounds are given up after, rather than after 50 seconds.
SHORT_HEARTBEAT_MS = 5_000

SECOND_DRIVER, FREEZE_SLOT = "second driver", "freeze slot"
#: The driver's SparkContext is stopped, and its JVM goes on.
CONTEXT = "context"
#: All processes of a host, which comes back at once. Only where there are hosts.
HOST = "host"
THAWS = ("soon", "while the newer one runs", "when the newer one has ended")

LOCAL_KINDS = ("slot", "worker", "jvm", "driver", CONTEXT, FREEZE_SLOT, SECOND_DRIVER)
CLUSTER_KINDS = ("executor", *LOCAL_KINDS)
#: The share of rounds that run ``keyed_process``.
DATAFRAME_SHARE = 0.3


@attrs.frozen
class Plan:
    """What happens in a round.

    Attributes:
        troubles: in this order: a kind of process to kill, ``"context"``, ``"freeze slot"``, ``"second
            driver"`` or ``"host"``.
        forks: who forks a child that lives on: the driver, the slots.
        is_slowed: processes are stopped for a moment, again and again.
        injection: a line between "epoch asked for" and "epoch running", and how often it is passed before it
            fails.
        savepoint_after: take a savepoint after so many epochs, and go back to it some epochs later.
        heartbeat_timeout_ms: as for the job.
        thaws: when a driver goes on that was frozen as a second one was started.
        waits: each trouble waits for a checkpoint to go back to.
        is_dataframe: the job is a ``keyed_process`` over a streaming DataFrame, with ``initial_state``. It
            takes no savepoint, because a streaming query does not go back.
    """

    troubles: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    is_slowed: bool = False
    injection: tuple[int, int] | None = None
    savepoint_after: int | None = None
    heartbeat_timeout_ms: int = SHORT_HEARTBEAT_MS
    thaws: str = "soon"
    waits: bool = False
    is_dataframe: bool = False

    @classmethod
    def drawn(cls, seed: int, kinds: tuple[str, ...] = LOCAL_KINDS) -> Plan:
        """Draw a plan. Rounds with consecutive seeds take consecutive lines for their failures."""
        rng = random.Random(f"plan {seed}")
        troubles = tuple(rng.choice(kinds) for _ in range(rng.choice([1, 2])))
        made = cls(
            troubles,
            tuple(who for who in ("driver", "slot") if rng.random() < 0.25),
            rng.random() < 0.5,
            (seed, rng.randrange(4)) if rng.random() < 0.6 else None,
            rng.randint(1, 5) if rng.random() < 0.35 else None,
            SHORT_HEARTBEAT_MS if FREEZE_SLOT in troubles else rng.choice([SHORT_HEARTBEAT_MS, 50_000]),
            rng.choice(THAWS),
        )
        is_dataframe = rng.random() < DATAFRAME_SHARE
        return attrs.evolve(made, savepoint_after=None, is_dataframe=True) if is_dataframe else made

    def options(self) -> list[str]:
        """Return the program's options for what it does to itself."""
        made = ["--heartbeat-timeout-ms", str(self.heartbeat_timeout_ms)]
        for who in self.forks:
            made += ["--forks", who]
        if self.injection is not None:
            made += ["--inject", *map(str, self.injection)]
        if self.savepoint_after is not None:
            made += ["--savepoint-after", str(self.savepoint_after)]
        made += ["--dataframe"] * self.is_dataframe
        return made
