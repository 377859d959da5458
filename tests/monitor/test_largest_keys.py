"""The largest keys of a checkpoint: right, within bounds, and only when somebody asks."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slot_functions import Count
from support_job import JobRun, numbers
from support_runtime import PICKLED
from support_web import browser_of, monitor_with, stories_at
from tiers import cases

from pyflinkstate.api.types import Types
from pyflinkstate.monitor.largest_keys import LargestKeys, largest_keys
from pyflinkstate.runtime.plan.nodes import StatefulNode

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
