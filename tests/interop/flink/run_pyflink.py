"""Runs ``interop_program.py`` in PyFlink: ``run_pyflink.py MODE LINES OUTPUT FOLDER|- FORMAT key=value...``.

MODE is ``process`` or ``thread``. Beside this file is the program, with PyFlink's names in its imports.
"""

from __future__ import annotations

import os
import sys

from interop_program import build
from pyflink.common import Configuration
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway


def main(mode: str, lines: str, output: str, folder: str, form: str, *settings: str) -> None:
    """Run the job to its end, or until a savepoint."""
    # The interpreter in the JVM of thread mode looks for its packages there.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    configuration = Configuration()
    configuration.set_string("python.execution-mode", mode)
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("pipeline.jars", os.environ["FLINK_JARS"])
    for setting in settings:
        configuration.set_string(*setting.split("=", 1))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    java = get_gateway().jvm.interop
    read = DataStream(java.Lines.of(env._j_stream_execution_environment, lines))
    written = build(read, with_sessions=mode == "process")
    written._j_data_stream.sinkTo(java.WrittenLines(output)).uid("written")
    job = env.execute_async()
    print(java.Run.end(job._j_job_client, lines, folder, form))


if __name__ == "__main__":
    main(*sys.argv[1:])
