"""What Spark's own page says of a job: its name, its epochs, its operators, and where its page is."""

from __future__ import annotations

from typing import Any

import pytest

from pyflinkstate import KeyedProcessFunction, StreamExecutionEnvironment, Types
from pyflinkstate.runtime.spark.epoch_runner import _shown_by_spark

pytestmark = pytest.mark.timeout(300)


class Echo(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


def stages_of(spark: Any) -> list[tuple[str, str]]:
    """Return name and description of all stages that Spark remembers."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()
    no_numbers = context._gateway.new_array(context._gateway.jvm.double, 0)
    found = context._jsc.sc().statusStore().stageList(None, False, False, no_numbers, None)
    each = [found.apply(n) for n in range(found.size())]
    descriptions = [(stage.name(), stage.description()) for stage in each]
    return [(name, told.get() if told.isDefined() else None) for name, told in descriptions]


@pytest.mark.spark
@pytest.mark.quick
def test_jobs_and_stages_are_named_after_operators(spark: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(spark=spark).set_parallelism(1)
    env.enable_web_page()
    numbers = env.from_collection([1, 2]).name("numbers <one>")
    numbers.key_by(lambda n: n, key_type=Types.LONG()).process(Echo()).name("echo").print()
    env.execute("orders & more")
    address = env.get_web_page_address()
    env.close()
    assert address is not None
    page, _, token = address.partition("?token=")
    stages = [one for one in stages_of(spark) if "orders &amp; more" in (one[1] or "")]
    described = {description for _, description in stages}
    about = f"(numbers &lt;one&gt; → echo → print; {page})"
    assert described == {f"orders &amp; more: epoch 1 {about}"}
    assert {name for name, _ in stages} == {"numbers <one> -> echo", "echo -> print"}
    assert token not in str(stages_of(spark))


def test_a_name_cannot_become_a_link() -> None:
    shown = _shown_by_spark('<a href="/kill">orders</a>: epoch 1', "a & b")
    assert shown == '&lt;a href="/kill"&gt;orders&lt;/a&gt;: epoch 1 (a &amp; b)'
