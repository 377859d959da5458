"""What a notebook shows: static, small, and with every text escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from support_job import JobRun
from support_web import EVIL

from pyflinkstate import notebook
from pyflinkstate.runtime.master.observe import CheckpointStats, JobExecutionResult
from pyflinkstate.runtime.program.job_client import JobClient
from pyflinkstate.state_access import open_checkpoint


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
