"""Where slots are started: hosts share them evenly, and so do the executors of a host.

Spark gives a task to whichever executor has a core to spare, so the first available executor would start
most slots. A slot stays where it was started for as long as the attempt lasts. So the tasks that start slots
prefer an executor each. Spark waits for it as long as ``spark.locality.wait`` says, and then takes another.
"""

from __future__ import annotations

import logging
import pickle
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import attrs
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext

from pyflinkstate.api.values import Record, SparkObject
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.wire import SlotId

_log = logging.getLogger("pyflinkstate.job")

#: The driver is listed with the executors, also where it runs no tasks.
_DRIVER = "driver"


@attrs.frozen(order=True)
class Executor:
    """A process that runs tasks."""

    host: str
    executor_id: str

    def location(self) -> str:
        """Return how Spark's scheduler names the executor as a place for a task."""
        return f"executor_{self.host}_{self.executor_id}"


def executors_of(context: SparkContext) -> list[Executor]:
    """Return the executors that there are now; none if tasks run in the driver's own process.

    Spark tells them in no public way; a release that does not tell them at all has none here.
    """
    try:
        return _listed(context)
    except Py4JError as error:
        _log.debug("this release of Spark does not tell its executors: %s", error)
        return []


def _listed(context: SparkContext) -> list[Executor]:
    listed: SparkObject = context._jsc.sc().statusStore().executorList(True)
    there = (listed.apply(index) for index in range(listed.size()))
    found = (Executor(str(each.hostPort()).rpartition(":")[0], str(each.id())) for each in there)
    return sorted(executor for executor in found if executor.executor_id != _DRIVER)


def missing_slots(request: EpochRequest) -> list[SlotId]:
    """Return the slots of an epoch that do not run yet."""
    operators = request.plan.operators
    if len(request.addresses) == sum(operator.parallelism for operator in operators):
        return []
    slots = (SlotId(each.operator_id, subtask) for each in operators for subtask in range(each.parallelism))
    return [slot for slot in slots if slot not in request.addresses]


def placed(slots: Iterable[SlotId], executors: Sequence[Executor]) -> list[tuple[SlotId, Executor]]:
    """Return an executor for each slot, one host after the other.

    >>> one, other, another = Executor("a", "0"), Executor("a", "1"), Executor("b", "2")
    >>> slots = [SlotId("count", subtask) for subtask in range(4)]
    >>> [executor.executor_id for _, executor in placed(slots, [one, other, another])]
    ['0', '2', '1', '2']
    """
    of_host: dict[str, list[Executor]] = defaultdict(list)
    for executor in executors:
        of_host[executor.host].append(executor)
    hosts, given = sorted(of_host), Counter[str]()
    found = []
    for number, slot in enumerate(slots):
        host = hosts[number % len(hosts)]
        found.append((slot, of_host[host][given[host] % len(of_host[host])]))
        given[host] += 1
    return found


def slots_rdd(context: SparkContext, slots: Sequence[SlotId]) -> RDD[Record]:
    """Return an RDD with a partition for each slot, which prefers the executor that the slot is for."""
    executors = executors_of(context)
    if len(executors) < 2:
        return context.parallelize(slots, len(slots))
    jvm: SparkObject = context._jvm
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    elements = jvm.java.util.ArrayList()
    for slot, executor in placed(slots, executors):
        locations = jvm.java.util.ArrayList()
        locations.add(executor.location())
        elements.add(jvm.scala.Tuple2(pickle.dumps(slot), to_seq(locations)))
    class_tag = context._jsc.emptyRDD().classTag()
    made = context._jsc.sc().makeRDD(to_seq(elements), class_tag)
    return RDD(made.toJavaRDD(), context, context._unbatched_serializer)
