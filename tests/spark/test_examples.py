"""The examples against plain Python, at every parallelism, with a crash, on real data; Nexmark's queries."""

from __future__ import annotations

import csv
import gzip
import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nexmark
import pytest
from doc_blocks import ROOT, blocks_of
from example_programs import (
    ALL,
    BY_LINES,
    Example,
    Poisoned,
    make_days,
    retail,
    savepoint_migration,
    structured_streaming,
)
from nexmark_suite.generator import GeneratorConfig, events_between
from nexmark_suite.oracles import Tables
from nexmark_suite.queries import QUERIES
from operators import rows_in
from test_recovery import Recorder

from pyflinkstate import (
    Configuration,
    DataStream,
    FileSink,
    RestartStrategies,
    StreamExecutionEnvironment,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

#: Of each sample, where it is read bit by bit.
EPOCHS = 4
REAL_DAYS = 3


class Runs:
    """Environments with checkpoints below a folder, whose jobs may restart once."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.told = Recorder()
        self.marker = folder / "crashed"

    def environment(self, parallelism: int) -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment(self.spark).set_parallelism(parallelism)
        # What crashes while it is read ahead is read again in its turn, without a restart.
        env.configure(Configuration().set_string("pyflinkstate.epochs-ahead", "0"))
        env.enable_checkpointing(0, str(self.folder / "checkpoints"))
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
        return env.add_listener(self.told)

    def poisoned(self, stream: DataStream, fatal: Any) -> DataStream:
        return stream.map(Poisoned(fatal, self.marker))

    def check_crashed(self, times: int = 1) -> None:
        assert len(self.told.restarts) == times


@pytest.fixture
def runs(spark: Any, tmp_path: Path) -> Runs:
    return Runs(spark, tmp_path)


@pytest.mark.quick
@pytest.mark.parametrize("parallelism", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("example", ALL, ids=str)
def test_its_output_is_that_of_plain_python(spark: Any, example: Example, parallelism: int) -> None:
    env = StreamExecutionEnvironment(spark).set_parallelism(parallelism)
    stream = example.build(*(env.from_collection(records) for records in example.inputs))
    expected = Counter(example.expected(*example.inputs))
    assert expected
    assert Counter(stream.execute_and_collect()) == expected


@pytest.mark.parametrize("example", ALL, ids=str)
def test_with_a_crash_in_the_middle(runs: Runs, example: Example) -> None:
    env = runs.environment(parallelism=2)
    first, *others = example.inputs
    size = -(-len(first) // EPOCHS)
    stream = env.from_collection(first, records_per_epoch=size)
    stream = runs.poisoned(stream, first[len(first) * 3 // 5])
    rest = [env.from_collection(records, records_per_epoch=size) for records in others]
    assert Counter(example.build(stream, *rest).execute_and_collect()) == Counter(
        example.expected(*example.inputs)
    )
    runs.check_crashed()


class TestOnRealData:
    @pytest.mark.parametrize("example", BY_LINES, ids=str)
    def test_a_few_days(self, spark: Any, retail_dir: Path, example: Example) -> None:
        assert example.of_lines is not None
        assert example.of_line is not None
        env = StreamExecutionEnvironment(spark).set_parallelism(2)
        lines = retail.invoice_lines(env, str(retail_dir), REAL_DAYS)
        rest = [env.from_collection(records) for records in example.inputs[1:]]
        records = [record for line in read_lines(retail_dir) for record in example.of_line(line)]
        expected = Counter(example.expected(records, *example.inputs[1:]))
        assert expected
        assert Counter(example.build(example.of_lines(lines), *rest).execute_and_collect()) == expected


def read_lines(directory: Path, days: int | None = REAL_DAYS) -> Iterator[retail.Line]:
    for path in sorted(directory.glob("*.csv.gz"))[:days]:
        with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
            yield from map(retail.line_of, csv.DictReader(file))


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four small days of invoices, the later ones in younger files."""
    directory = tmp_path_factory.mktemp("days")
    make_days(directory, days=4, lines_a_day=60)
    for number, path in enumerate(sorted(directory.iterdir())):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return directory


class TestSavepointMigration:
    """Two days by version 1, two by version 2."""

    @pytest.mark.parametrize(
        ("before", "after", "crashing_version"),
        [
            pytest.param(1, 2, None, marks=pytest.mark.slow),
            (2, 3, 1),
            pytest.param(3, 1, 2, marks=pytest.mark.slow),
        ],
    )
    def test_version_2_goes_on_where_version_1_was(
        self, runs: Runs, made_up: Path, before: int, after: int, crashing_version: int | None
    ) -> None:
        fatal = None
        if crashing_version is not None:
            lines = list(read_lines(made_up, 4))
            fatal = lines[len(lines) * (2 * crashing_version - 1) // 4]
        self.migrate(runs, made_up, before, after, fatal)
        assert rows_in(runs.folder / "spends") == expected_spends(made_up)
        runs.check_crashed(0 if fatal is None else 1)

    def migrate(self, runs: Runs, days: Path, before: int, after: int, fatal: Any) -> None:
        def read(env: StreamExecutionEnvironment, **settings: Any) -> DataStream:
            return runs.poisoned(retail.invoice_lines(env, str(days), **settings), fatal)

        sink = FileSink(str(runs.folder / "spends"))
        env = runs.environment(before)
        savepoint_migration.build_version_1(read(env, days=2, growing=True)).sink_to(sink)
        savepoint = savepoint_migration.run_until_epoch(env, 2, str(runs.folder / "savepoints"))
        env = runs.environment(after).restore_from(savepoint)
        savepoint_migration.build(read(env)).sink_to(sink)
        env.execute("spend")


def expected_spends(directory: Path) -> Counter[str]:
    """What both versions write, by a plain loop."""
    spent: Counter[str] = Counter()
    dearest: dict[str, int] = {}
    rows: Counter[str] = Counter()
    for day in (1, 2, 3, 4):
        of_day = list(read_lines(directory, day))[len(list(read_lines(directory, day - 1))) :]
        for line in of_day:
            if line.customer == "":
                continue
            spent[line.customer] += line.cents
            if day > 2:
                dearest[line.customer] = max(line.cents, dearest.get(line.customer, line.cents))
            last = dearest[line.customer] if day > 2 else "null"
            rows[f'[{1 if day < 3 else 2},"{line.customer}",{spent[line.customer]},{last}]'] += 1
    return rows


class TestStructuredStreaming:
    @pytest.mark.parametrize("parallelism", [1, pytest.param(3, marks=pytest.mark.slow)])
    def test_its_output_is_that_of_plain_python(self, runs: Runs, made_up: Path, parallelism: int) -> None:
        assert self.run(runs, made_up, parallelism, fatal=None) == milestones(made_up)

    def test_with_a_crash_in_the_middle(self, runs: Runs, made_up: Path) -> None:
        lines = [line for line in read_lines(made_up, 4) if line.customer != "" and line.quantity > 0]
        middle = lines[len(lines) // 2]
        assert self.run(runs, made_up, 2, (middle.invoice, middle.product)) == milestones(made_up)
        runs.check_crashed()

    def run(self, runs: Runs, days: Path, parallelism: int, fatal: Any) -> Counter[tuple[str, int]]:
        env = runs.environment(parallelism)
        stream = structured_streaming.read(runs.spark, str(days))
        lines = env.from_streaming(stream, trigger={"availableNow": True})
        if fatal is not None:
            lines = lines.map(PoisonedRow(fatal, runs.marker))
        return Counter(structured_streaming.build(lines).execute_and_collect("milestones"))


class PoisonedRow(Poisoned):
    """Tells the fatal row by invoice and product."""

    def map(self, value: Any) -> Any:
        super().map((value.InvoiceNo, value.StockCode))
        return value


def milestones(directory: Path) -> Counter[tuple[str, int]]:
    spent: Counter[str] = Counter()
    passed: Counter[tuple[str, int]] = Counter()
    for line in read_lines(directory, 4):
        if line.customer == "" or line.quantity < 0:
            continue
        for _ in range(line.cents):
            spent[line.customer] += 1
            if spent[line.customer] % 100_000 == 0:
                passed[f"{line.customer}.0", spent[line.customer]] += 1
    return passed


class TestPrograms:
    """Run as from the command line, in this process."""

    @pytest.fixture
    def printed(
        self, spark: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> Callable[..., Counter[str]]:
        """Return what runs a program, and returns the lines it has printed, without subtasks."""

        def run(program: str, *options: str) -> Counter[str]:
            monkeypatch.setattr(sys, "argv", [program, *options])
            importlib.import_module(program).main()
            return Counter(line.split("> ", 1)[-1] for line in capsys.readouterr().out.splitlines())

        return run

    @pytest.mark.parametrize("example", [example for example in ALL if example.program], ids=str)
    def test_it_prints_the_results(self, printed: Callable[..., Counter[str]], example: Example) -> None:
        expected = Counter(map(str, example.expected(*example.inputs)))
        assert printed(example.program, "--parallelism", "2") == expected

    @pytest.mark.parametrize("program", ["savepoint_migration", "structured_streaming"])
    def test_it_runs_on_made_up_days(self, printed: Callable[..., Counter[str]], program: str) -> None:
        assert printed(program, "--parallelism", "2").total() > 10

    def test_restored_when_it_was_done_it_has_nothing_to_do(
        self, printed: Callable[..., Counter[str]], tmp_path: Path
    ) -> None:
        assert printed("word_count", "--checkpoint-dir", str(tmp_path))
        again = ["--checkpoint-dir", str(tmp_path), "--restore", "latest", "--parallelism", "3"]
        assert not printed("word_count", *again)


# --- Nexmark ---------------------------------------------------------------------------------------

#: 200 seconds of event time.
CONFIG = GeneratorConfig(10_000, rate=50, disorder=100)


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables(events_between(CONFIG, 0, CONFIG.events))


@pytest.mark.parametrize("number", QUERIES)
def test_the_results_are_right(spark: Any, number: int, tables: Tables) -> None:
    assert nexmark.is_right(spark, QUERIES[number], CONFIG, 2, tables)


# --- programs of README and docs ---------------------------------------------------------------------------


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_PROGRAMS = [page for page in PAGES if any(block.is_run for block in blocks_of(page))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.spark
@pytest.mark.usefixtures("no_slot_left", "spark")
@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=name_of)
def test_the_programs_of_a_page(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They share their names, in order. A session is active already, and files are below an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page):
        code: Any = block.compiled()
        if block.is_run:
            exec(code, names)
            printed = capsys.readouterr().out.splitlines()
            assert block.output is None or printed == block.output, f"{block.page}, line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_are_python(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("```python") == sum(1 for block in blocks_of(page) if block.compiled())


def test_the_first_thirty_lines_of_the_readme_say_it_all() -> None:
    beginning = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    for part in (
        "```python",
        "```text",
        "`make demo`",
        "`make test`",
        "**Guaranteed**",
        "**Not guaranteed**",
    ):
        assert part in beginning
