"""A job that does not end by itself: it is asked for its status, saved, stopped and cancelled."""

import os
import tempfile
import time

from pyflink.common import Duration, JobStatus, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat

folder = tempfile.mkdtemp()
os.mkdir(f"{folder}/in")
with open(f"{folder}/in/lines.txt", "w") as file:
    file.write("first\nsecond\n")


def started(name):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.enable_checkpointing(100)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{folder}/in")
    source = source.monitor_continuously(Duration.of_millis(50)).build()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").print(name)
    client = env.execute_async(name)
    while client.get_job_status().result() != JobStatus.RUNNING:
        time.sleep(0.05)
    return client


def is_savepoint(path):
    return os.path.exists(f"{path.replace('file:', '')}/_metadata")


def saved(client):
    """Return a savepoint; PyFlink refuses until all tasks run."""
    while True:
        try:
            return client.trigger_savepoint(f"{folder}/savepoints").result()
        except Exception as error:
            if "not being executed at the moment" not in str(error):
                raise
            time.sleep(0.1)


first = started("stopped")
print(is_savepoint(saved(first)))
print(is_savepoint(first.stop_with_savepoint(False, f"{folder}/savepoints").result()))
first.get_job_execution_result().result()
print(first.get_job_status().result().name)

second = started("cancelled")
second.cancel().result()
while not second.get_job_status().result().is_terminal_state():
    time.sleep(0.05)
print(second.get_job_status().result().name)
