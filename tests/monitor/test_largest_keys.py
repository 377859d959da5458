"""The largest keys of a checkpoint: right, within bounds, and only when somebody asks."""

from __future__ import annotations

import queue
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from slot_functions import Count
from support_job import JobRun, numbers
from support_runtime import PICKLED
from support_web import EVIL, browser_of, monitor_with, stories_at
from tiers import cases

from pyflinkstate import notebook
from pyflinkstate.api import Types
from pyflinkstate.monitor.largest_keys import LargestKeys, largest_keys
from pyflinkstate.monitor.story import LogTail
from pyflinkstate.runtime.master.observe import CheckpointStats, JobExecutionResult
from pyflinkstate.runtime.plan.nodes import StatefulNode
from pyflinkstate.runtime.program.job_client import JobClient
from pyflinkstate.state_access import open_checkpoint

pytestmark = pytest.mark.timeout(60)


class Pad(Count):
    """Counts, and keeps as many bytes as its key says."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((1, b"x" * (ctx.get_current_key() + 1) * 1000))
        return ()


def uri(run: JobRun) -> str:
    job = run.run()
    found = job.result().checkpoints[-1].uri
    assert found is not None
    return found


@pytest.mark.parametrize("key_type", cases([PICKLED, Types.LONG()], quick=[PICKLED]))
def test_the_largest_come_first(run: JobRun, key_type: Any) -> None:
    run.end = StatefulNode(numbers(), lambda n: n, key_type, Pad(), "count", uid="counts")
    found = largest_keys(uri(run), "counts")["states"]["count"]
    assert (found["entries"], found["is_whole"]) == (10, True)
    assert [one["key"] for one in found["keys"]] == [str(n) for n in range(9, -1, -1)]
    sizes = [one["bytes"] for one in found["keys"]]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] >= 10_000
    assert found["bytes"] >= sum(range(1, 11)) * 1000


def test_the_search_ends_when_its_time_is_over(run: JobRun) -> None:
    run.end = StatefulNode(numbers(), lambda n: n, PICKLED, Pad(), "count", uid="counts")
    times = iter(range(0, 10_000, 30))
    found = largest_keys(uri(run), "counts", lambda: float(next(times)))["states"]["count"]
    assert not found["is_whole"]
    assert found["entries"] < 10


def test_one_search_at_a_time_and_its_answer_is_kept(run: JobRun) -> None:
    begun: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    keys = LargestKeys(start=begun.put)
    path = uri(run)
    assert keys.of(path, "counts") == {"is_ready": False}
    assert keys.of(path, "other") == {"is_ready": False}
    begun.get_nowait()()
    assert begun.empty()
    assert keys.of(path, "counts")["states"]["count"]["entries"] == 2
    assert keys.of(path, "other") == {"is_ready": False}
    begun.get_nowait()()
    assert "has no operator 'other'" in keys.of(path, "other")["error"]
    assert begun.empty()


def test_an_error_is_told_once_and_then_the_search_begins_anew(run: JobRun) -> None:
    begun: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    keys = LargestKeys(start=begun.put)
    path = uri(run)
    metadata = Path(path, "_metadata")
    away = metadata.rename(metadata.parent / "away")
    assert keys.of(path, "counts") == {"is_ready": False}
    begun.get_nowait()()
    assert keys.of(path, "counts")["error"]
    away.rename(metadata)
    assert keys.of(path, "counts") == {"is_ready": False}
    begun.get_nowait()()
    for _ in range(2):
        assert keys.of(path, "counts")["states"]["count"]["entries"] == 2


def test_the_page_of_a_dead_job_answers_from_its_folder_only(run: JobRun) -> None:
    """Whatever its journal says, no other folder is read."""
    assert run.storage is not None
    job = run.run()
    (story,) = stories_at(run.storage.uri)
    story.checkpoints.recent[-1]["uri"] = "/etc"
    monitor = monitor_with(story, folder=f"{run.storage.uri}/{job.job_id}")
    browser = browser_of(monitor).enter()
    path = f"/api/jobs/{job.job_id}/largest-keys?operator=counts"
    while not (answer := browser.ask(path).json())["is_ready"]:
        pass
    assert answer["states"]["count"]["entries"] == 2
    assert browser.ask(f"/api/jobs/{job.job_id}/largest-keys").status == 404
    assert browser.ask("/api/jobs/none/largest-keys?operator=counts").status == 404
    monitor.close()


# --- the last lines of slots: within a bound in bytes, whatever is printed ------------------------


def test_the_oldest_lines_are_dropped_and_counted() -> None:
    tail = LogTail(most_bytes=2_000)
    for number in range(1_000):
        tail.add(number, "a[0]", [(20, f"line {number}")])
    found = tail.found()
    assert 1 <= found["kept"] < 20
    assert found["kept"] + found["forgotten"] == 1_000
    assert found["lines"][-1] == [999, "a[0]", "INFO", "line 999"]


def test_a_long_line_is_cut_and_one_that_does_not_fit_is_dropped() -> None:
    tail = LogTail()
    tail.add(1, "a[0]", [(20, "x" * 100_000)])
    assert len(tail.found()["lines"][0][3]) == 2_000
    small = LogTail(most_bytes=10)
    small.add(1, "a[0]", [(20, "x")])
    assert (small.found()["kept"], small.found()["forgotten"]) == (0, 1)


def test_a_filter_sees_all_that_is_kept_and_shows_the_newest() -> None:
    tail = LogTail()
    tail.add(1, "Orders[0]", [(40, "Broken"), *[(20, f"n {n}") for n in range(600)]])
    assert tail.found("broken", "orders", 40)["lines"] == [[1, "Orders[0]", "ERROR", "Broken"]]
    found = tail.found()
    assert (found["matching"], len(found["lines"])) == (601, 500)
    assert found["lines"][0][3] == "n 100"


# --- what a notebook shows: static, small, and with every text escaped ----------------------------


class Tags(HTMLParser):
    """Collects tags and texts, and sees that every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"scope"}
        self.tags.add(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(value: Any) -> Tags:
    tags = Tags(value._repr_html_())
    assert tags.tags <= {"table", "caption", "tr", "th", "td", "p"}
    return tags


def test_a_result_is_shown_with_its_counts() -> None:
    result = JobExecutionResult(EVIL, {f"{EVIL}.records_in": 1_234_567}, (), (), 3, 1, net_runtime_ms=1500)
    texts = shown(result).texts
    assert f"job {EVIL}" in texts
    assert f"{EVIL}.records_in" in texts
    assert "1,234,567" in texts
    assert "1.5 s" in texts


def test_a_long_table_is_cut_and_says_so() -> None:
    result = JobExecutionResult("a", {f"n{number:03d}": number for number in range(100)}, (), (), 0, 0)
    texts = shown(result).texts
    assert "80 more" in texts
    assert "n020" not in texts
    assert len(notebook.facts("a", [("b", "x" * 10_000)])) < 700


def test_a_checkpoint_is_shown_completed_and_failed() -> None:
    completed = CheckpointStats(7, 3, 1.25, 2.0, 2048, 100, uri="/chk-7", is_savepoint=True)
    assert {"savepoint 7", "2.0 KiB", "/chk-7"} <= set(shown(completed).texts)
    failed = shown(CheckpointStats(8, 3, failure=EVIL)).texts
    assert EVIL in failed
    assert "size" not in failed


def test_a_client_is_shown_while_its_job_runs_and_after(run: JobRun) -> None:
    run.name = EVIL
    client = JobClient(run.job(), None)
    shown(client)
    client.get_job_execution_result().result(20)
    texts = shown(client).texts
    assert {f"job {EVIL}", "FINISHED", "count.records_in"} <= set(texts)


def test_an_opened_checkpoint_is_shown_with_its_operators(run: JobRun) -> None:
    run.run()
    checkpoint = open_checkpoint(run.heard.checkpoints[-1].uri or "")
    texts = shown(checkpoint).texts
    last = run.heard.checkpoints[-1].checkpoint_id
    assert {f"checkpoint {last} of orders", "counts", "128"} <= set(texts)
