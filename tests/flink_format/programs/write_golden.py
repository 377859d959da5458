"""Writes the savepoints of ``tests/flink_format/golden`` with real Flink: ``write_golden.py [NAME...]``.

It needs the environment of ``make interop``, and Maven (``mvn``) for the versions of Flink before 2.3 and for
Kafka, of which it starts a broker.
What it writes differs in names of files and identifiers only. Flink's clock stands still meanwhile.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).parent
GOLDEN = PROGRAMS.parent / "golden"
ROOT = PROGRAMS.parents[2]
FLINK = Path(os.environ.get("FLINK_ENVIRONMENT", ROOT / "build" / "flink"))
PYFLINK_VERSION = "2.3.0"
#: Flink's Kafka source, and what it needs that is not in PyFlink's wheel.
KAFKA = ("org.apache.flink:flink-connector-kafka:4.0.1-2.0", "org.apache.flink:flink-connector-base:2.2.1")
#: Without a watermark, the timers that PyFlink has set in process mode would not be in the savepoint, which
#: ends their bundle: they still wait in the task's mailbox.
LINES = "1000,1\n2000,2\n3000,3\n4000,1\nw,500\n"
CLOCK_MS = 1700000000000
SLOW_LINES = "".join(f"{number},{number}\n" for number in range(300))
#: What real state is not read from: there only the file of metadata is kept.
REFUSED = ("rocksdb-native", "changelog", "unaligned")
MANY_GROUPS = {"pipeline.max-parallelism": "1000"}
#: The native format of the heap writes each key group, be it empty.
FEW_GROUPS = {"pipeline.max-parallelism": "8"}
COMPRESSED = {"execution.checkpointing.snapshot-compression": "true"}
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true", "taskmanager.memory.segment-size": "4kb"}
TWO_SUBTASKS = {"parallelism.default": "2"}
IN_FILES = {"execution.checkpointing.data-inline-threshold": "0"}
RETAINED = {
    "execution.checkpointing.interval": "300ms",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
}
JAVA_OPTIONS = [
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("util", "lang", "time")),
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx1g",
    "-Duser.timezone=UTC",
]


@dataclass(frozen=True)
class Savepoint:
    """How one of the savepoints is written."""

    version: str
    program: str
    format: str
    settings: Mapping[str, str] = field(default_factory=dict)


SAVEPOINTS = {
    "2.3.0-kafka": Savepoint("2.3.0", "kafka", "CANONICAL", TWO_SUBTASKS),
    **{
        f"{PYFLINK_VERSION}-{mode}{suffix}": Savepoint(PYFLINK_VERSION, mode, form, settings)
        for mode in ("process", "thread")
        for suffix, form, settings in (("", "CANONICAL", {}), ("-native", "NATIVE", FEW_GROUPS))
    },
    **{
        f"{version}-java{suffix}": Savepoint(version, "all", form, settings)
        for version in ("1.20.5", "2.0.2", "2.2.1", "2.3.0")
        for suffix, form, settings in (("", "CANONICAL", {}), ("-native", "NATIVE", FEW_GROUPS))
    },
    **{
        f"2.3.0-java-{name}": Savepoint("2.3.0", program, form, settings)
        for name, program, form, settings in (
            ("files", "small", "CANONICAL", TWO_SUBTASKS | IN_FILES),
            ("compressed", "small", "NATIVE", TWO_SUBTASKS | FEW_GROUPS | COMPRESSED),
            ("groups", "small", "CANONICAL", TWO_SUBTASKS | MANY_GROUPS),
            ("checkpoint", "small", "CHECKPOINT", FEW_GROUPS | IN_FILES | RETAINED),
            ("finished", "finished", "CANONICAL", TWO_SUBTASKS),
            ("rocksdb", "small", "CANONICAL", {"state.backend.type": "rocksdb"}),
            ("rocksdb-native", "small", "NATIVE", IN_FILES | {"state.backend.type": "rocksdb"}),
            ("changelog", "small", "CHECKPOINT", FEW_GROUPS | RETAINED | {"state.changelog.enabled": "true"}),
            ("unaligned", "slow", "CHECKPOINT", FEW_GROUPS | RETAINED | UNALIGNED),
        )
    },
}


def write(name: str, folder: Path) -> None:
    """Write one savepoint into the folder of golden files."""
    savepoint = SAVEPOINTS[name]
    lines = folder / "lines"
    lines.write_text(SLOW_LINES if savepoint.program == "slow" else LINES)
    (folder / "lines.ended").write_text("500,7\n")
    (folder / "lines.held").touch()
    settings = {
        "parallelism.default": "1",
        "pipeline.max-parallelism": "128",
        "execution.checkpointing.dir": f"file://{folder}",
        **savepoint.settings,
    }
    told = [f"{key}={value}" for key, value in settings.items()]
    if savepoint.program == "kafka":
        with _records_in_kafka() as servers:
            _run([*_java("KafkaGolden", savepoint.version), servers, "7", f"file://{folder}", *told])
    else:
        arguments = [savepoint.program, str(lines), f"file://{folder}", savepoint.format, *told]
        python = [str(FLINK / "pyflink" / "bin" / "python"), str(PROGRAMS / "golden_pyflink.py")]
        in_python = savepoint.program in ("process", "thread")
        preloaded = {"LD_PRELOAD": str(FLINK / "clock.so"), "FLINK_CLOCK_MS": str(CLOCK_MS)}
        _run([*(python if in_python else _java("Golden", savepoint.version)), *arguments], **preloaded)
    (written,) = folder.glob("**/_metadata")
    shutil.rmtree(GOLDEN / name, ignore_errors=True)
    (GOLDEN / name).mkdir(parents=True)
    for file in [written] if name.endswith(REFUSED) else written.parent.iterdir():
        shutil.copy(file, GOLDEN / name)


def _run(command: Sequence[str], **variables: str) -> None:
    environment = {**os.environ, **variables, "FLINK_JARS": f"file://{FLINK / 'interop.jar'}"}
    subprocess.run(command, env=environment, check=True, timeout=300, stdout=subprocess.DEVNULL)


@contextmanager
def _records_in_kafka() -> Iterator[str]:
    """Start a broker with seven records in the topic "clicks", and one in "orders"; yield its address."""
    sys.path.append(str(ROOT / "tests" / "support"))
    from kafka_server import running_kafka

    with running_kafka() as kafka:
        clicks, orders = kafka.topic(3, "clicks"), kafka.topic(1, "orders")
        kafka.send(clicks, "a", "b", "a", "c", "a")
        kafka.send(clicks, "b", "b", partition=1)
        kafka.send(orders, "before")
        yield kafka.servers


def _java(program: str, version: str) -> list[str]:
    """Compile a program for a version of Flink and return the command that runs it."""
    classes = FLINK / f"classes-{version}-{program}"
    jars = _jars(version)
    if program == "KafkaGolden":
        jars += f":{_fetched('kafka', KAFKA)}"
    sources = [ROOT / "tests" / "interop" / "flink" / f"{name}.java" for name in ("Lines", "Run", "Written")]
    compile_all = ["javac", "-nowarn", "-cp", jars, "-d", str(classes)]
    subprocess.run([*compile_all, *map(str, sources), str(PROGRAMS / f"{program}.java")], check=True)
    return ["java", *JAVA_OPTIONS, "-cp", f"{jars}:{classes}", f"golden.{program}"]


def _jars(version: str) -> str:
    if version == PYFLINK_VERSION:
        (jars,) = (FLINK / "pyflink" / "lib").glob("python*/site-packages/pyflink/lib")
        return f"{jars}/*"
    artifacts = [f"org.apache.flink:{name}:{version}" for name in ("flink-clients", "flink-streaming-java")]
    return _fetched(f"flink-{version}", artifacts)


def _fetched(name: str, artifacts: Sequence[str]) -> str:
    """Fetch artifacts of Maven, and what they need, into a folder with this name; return its jars."""
    folder = FLINK / name
    if not folder.exists():
        dependencies = "".join(
            "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
                *artifact.split(":")
            )
            for artifact in artifacts
        )
        folder.mkdir(parents=True)
        (folder / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>golden</groupId><artifactId>golden</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        subprocess.run([*copy, "-DincludeScope=runtime"], cwd=folder, check=True)
    return f"{folder}/lib/*"


def main() -> int:
    """Write the savepoints that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SAVEPOINTS))
    for name in parser.parse_args().names or SAVEPOINTS:
        with tempfile.TemporaryDirectory() as folder:
            write(name, Path(folder))
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
