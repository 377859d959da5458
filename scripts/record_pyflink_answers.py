"""Records PyFlink's answers to the random programs of ``tests/support/random_programs.py``.

It runs in an environment of its own, which has PyFlink 2.3 and a JDK (``javac``), and not this package::

    python -m venv pyflink && pyflink/bin/pip install "apache-flink==2.3.*"
    pyflink/bin/python scripts/record_pyflink_answers.py tests/support/pyflink_answers.jsonl.gz --seeds 501

Each line of the file is the outputs of one seed, from 0 on: ``{"main": [[key, value, time], ...], ...}``.
The programs run in PyFlink's thread mode with parallelism 1, some of them in each job.

PyFlink has no watermark generator in Python, and its own generators emit by the clock: from a small
collection they emit nothing before the end of time. So this file has a generator in Java, which emits after
each record, or after the last one, as a periodic generator may.
With ``--only`` some seeds are recorded again, and the others are kept as they are in the file.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parents[1] / "tests" / "support"
#: How many programs run in one job.
TOGETHER = 10
GENERATOR = """
import org.apache.flink.api.common.eventtime.*;
import org.apache.flink.api.java.tuple.*;

public class CountedWatermarks implements WatermarkGeneratorSupplier<Object> {
    private final long delay;
    private final long every;
    public CountedWatermarks(long delay, long every) { this.delay = delay; this.every = every; }
    public WatermarkGenerator<Object> createWatermarkGenerator(WatermarkGeneratorSupplier.Context context) {
        return new WatermarkGenerator<Object>() {
            private long latest = Long.MIN_VALUE + delay + 1;
            private long count = 0;
            public void onEvent(Object event, long timestamp, WatermarkOutput output) {
                latest = Math.max(latest, timestamp);
                if (++count % every == 0) {
                    output.emitWatermark(new Watermark(latest - delay - 1));
                }
            }
            public void onPeriodicEmit(WatermarkOutput output) {}
        };
    }
    public static WatermarkStrategy<Object> strategy(long delay, long every) {
        return WatermarkStrategy.forGenerator(new CountedWatermarks(delay, every));
    }
}
"""


def main() -> int:
    """Record the answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=501, help="how many seeds, from 0 on")
    parser.add_argument("--only", type=int, nargs="+", help="the seeds to record again")
    arguments = parser.parse_args()
    answers: dict[int, Any] = {}
    if arguments.only:
        with gzip.open(arguments.out, "rt") as kept:
            answers = {seed: json.loads(line) for seed, line in enumerate(kept)}
    with tempfile.TemporaryDirectory() as folder:
        _prepare(Path(folder))
        answers |= _answers(arguments.only or range(arguments.seeds), Path(folder))
    lines = [json.dumps(answers[seed], separators=(",", ":")) for seed in sorted(answers)]
    with gzip.GzipFile(arguments.out, "wb", mtime=0) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    return 0


def _prepare(folder: Path) -> None:
    """Put what PyFlink runs into a folder, where its workers find it too."""
    for name in ("random_programs.py", "program_interpreter.py"):
        (folder / name).write_text((SUPPORT / name).read_text().replace("pyflinkstate", "pyflink"))
    import pyflink

    (folder / "CountedWatermarks.java").write_text(GENERATOR)
    jars = ":".join(map(str, (Path(pyflink.__file__).parent / "lib").glob("*.jar")))
    subprocess.run(["javac", "-cp", jars, "CountedWatermarks.java"], cwd=folder, check=True)
    classes = [file.name for file in folder.glob("*.class")]
    subprocess.run(["jar", "cf", "generator.jar", *classes], cwd=folder, check=True)
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))


def _answers(seeds: Sequence[int], folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    from random_programs import in_order, program_of

    for begin in range(0, len(seeds), TOGETHER):
        programs = [program_of(seed) for seed in seeds[begin : begin + TOGETHER]]
        found = _run(programs, folder)
        for program in programs:
            yield program["seed"], in_order(program, found[program["seed"]])
        print(f"{begin + len(programs)} programs", flush=True)


def _run(programs: list[dict[str, Any]], folder: Path) -> dict[int, dict[str, list[list[int]]]]:
    from program_interpreter import outputs_of, tagged
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment

    configuration = Configuration()
    configuration.set_string("python.execution-mode", "thread")
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    env.add_jars(f"file://{folder}/generator.jar")
    streams = []
    found: dict[int, dict[str, list[list[int]]]] = {}
    for program in programs:
        outputs = outputs_of(_source(env, program), program)
        found[program["seed"]] = {name: [] for name in outputs}
        streams.append(tagged(outputs, program["seed"]))
    stream = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    with stream.execute_and_collect() as results:
        for seed, name, record in results:
            found[seed][name].append(record)
    return found


def _source(env: Any, program: dict[str, Any]) -> Any:
    from pyflink.common import WatermarkStrategy
    from pyflink.common.watermark_strategy import TimestampAssigner
    from pyflink.java_gateway import get_gateway
    from pyflink.util.java_utils import load_java_class, to_jarray

    class Third(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            return int(value[2])

    when, delay = program["watermarks"]
    every = 1 if when == "each" else len(program["records"])
    jvm = get_gateway().jvm
    longs = to_jarray(jvm.Class, [jvm.Long.TYPE, jvm.Long.TYPE])
    arguments = to_jarray(jvm.Object, [jvm.Long.valueOf(delay), jvm.Long.valueOf(every)])
    made = load_java_class("CountedWatermarks").getMethod("strategy", longs).invoke(None, arguments)
    strategy = WatermarkStrategy(made)
    records = env.from_collection([tuple(record) for record in program["records"]])
    return records.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Third()))


if __name__ == "__main__":
    sys.exit(main())
