"""A job that does not end by itself is asked for its status, and cancelled."""

import os
import tempfile
import time

from pyflink.common import Duration, JobStatus, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat

COVERS = """
common.completable_future CompletableFuture: result
common.job_client JobClient: cancel get_job_status
common.job_status JobStatus: RUNNING
common.time Duration: of_millis
common.watermark_strategy WatermarkStrategy: no_watermarks
datastream.connectors.file_system FileSource: for_record_stream_format
datastream.connectors.file_system FileSourceBuilder: build monitor_continuously
datastream.connectors.file_system StreamFormat: text_line_format
datastream.stream_execution_environment StreamExecutionEnvironment: enable_checkpointing execute_async
    from_source get_execution_environment set_parallelism
"""

folder = tempfile.mkdtemp()
os.mkdir(f"{folder}/in")


def started(name):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.enable_checkpointing(100)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{folder}/in")
    source = source.monitor_continuously(Duration.of_millis(50)).build()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").print()
    client = env.execute_async(name)
    while client.get_job_status().result() != JobStatus.RUNNING:
        time.sleep(0.05)
    print(client.get_job_status().result().name)
    return client


client = started("cancelled")
print(client.cancel().result())
