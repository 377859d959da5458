"""The web page of a program on Spark, and what the page of Spark itself says of a job."""

from __future__ import annotations

import json
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from support_web import stories_at

from pyflinkstate import Configuration, KeyedProcessFunction, StreamExecutionEnvironment, Types
from pyflinkstate.runtime.spark.epoch_runner import _shown_by_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


class Echo(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.inc()
        yield value


def ask(address: str, path: str) -> bytes:
    base, _, token = address.partition("/?token=")
    request = urllib.request.Request(f"{base}/{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        read: bytes = answer.read()
        return read


@pytest.mark.quick
def test_a_job_is_on_the_page_and_in_its_folder(spark: Any, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(spark=spark).set_parallelism(2)
    env.enable_checkpointing(0, str(tmp_path)).enable_web_page()
    numbers = env.from_collection(range(100), records_per_epoch=40)
    numbers.map(lambda n: n + 1).name("plus one").key_by(lambda n: n % 5, key_type=Types.LONG()).process(
        Echo()
    ).uid("echo").print()
    result = env.execute("numbers")
    address = env.get_web_page_address()
    assert address is not None
    job = json.loads(ask(address, f"api/jobs/{result.job_id}"))
    assert (job["name"], job["status"], job["epoch"]) == ("numbers", "FINISHED", result.epochs)
    assert job["settings"]["pyflinkstate.engine"] == "STAGES"
    assert job["settings"].get("spark.page") == spark.sparkContext.uiWebUrl
    keyed = next(operator for operator in job["operators"] if operator["id"] == "echo")
    assert (keyed["records_in"], sum(keyed["subtask_records"])) == (100, 100)
    assert job["edges"][0]["chain"] == ["plus one"]
    epochs = json.loads(ask(address, f"api/jobs/{result.job_id}/epochs"))["epochs"]
    assert epochs[0]["phases_ms"]["reading"] > 0  # later ones may have been read ahead
    assert all(epoch["phases_ms"]["slots"] > 0 for epoch in epochs)
    metrics = ask(address, "metrics").decode()
    assert "flink_taskmanager_job_task_operator_seen{" in metrics
    (story,) = stories_at(str(tmp_path))
    assert (story.status, story.measured.totals) == ("FINISHED", result.accumulators)
    env.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=10)


def test_flinks_settings_switch_the_page_on(spark: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        settings = Configuration.from_dict({"rest.bind-port": f"{first},0", "rest.address": "localhost"})
        env = StreamExecutionEnvironment.get_execution_environment(settings, spark=spark)
        address = env.get_web_page_address()
        assert address is not None
        assert address.startswith("http://localhost:")
        assert json.loads(ask(address, "api/jobs")) == {"jobs": []}
        env.close()


def test_a_page_that_is_asked_for_after_the_journal_is_there_shows_earlier_jobs(
    spark: Any, tmp_path: Path
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(spark=spark).set_parallelism(1)
    env.enable_checkpointing(0, str(tmp_path)).set_journal(True)
    env.from_collection([1]).print()
    job_id = env.execute().job_id
    assert env.get_web_page_address() is None
    env.configure(Configuration.from_dict({"rest.port": "0"}))
    address = env.get_web_page_address()
    assert address is not None
    assert json.loads(ask(address, f"api/jobs/{job_id}"))["status"] == "FINISHED"
    assert env.get_web_page_address() == address
    env.close()


def test_the_journal_is_left_out_even_if_that_is_said_after_the_page_is_there(
    spark: Any, tmp_path: Path
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(spark=spark).set_parallelism(1)
    env.enable_checkpointing(0, str(tmp_path)).enable_web_page().set_journal(False)
    env.from_collection([1]).print()
    job_id = env.execute().job_id
    address = env.get_web_page_address()
    assert address is not None
    assert json.loads(ask(address, f"api/jobs/{job_id}"))["status"] == "FINISHED"
    assert list(tmp_path.glob("*/journal")) == []
    env.close()


def test_without_being_asked_for_there_is_no_page_and_no_journal(spark: Any, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(spark=spark).set_parallelism(1)
    env.enable_checkpointing(0, str(tmp_path))
    assert env.get_web_page_address() is None
    env.from_collection([1]).print()
    env.execute()
    assert list(tmp_path.glob("*/journal")) == []
    env.set_journal(True)
    env.from_collection([1]).print()
    env.execute()
    assert env.get_web_page_address() is None
    assert len(list(tmp_path.glob("*/journal"))) == 1


# --- Spark's own page ------------------------------------------------------------------------------


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
