"""Lines from files into files: a directory that is read once, and sinks with buckets and policies."""

import glob
import os
import tempfile

from pyflink.common import Encoder, Types, WatermarkStrategy
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)

COVERS = """
common.serialization Encoder: simple_string_encoder
common.typeinfo Types: STRING
common.watermark_strategy WatermarkStrategy: no_watermarks
datastream.connectors.base Sink
datastream.connectors.base Source
datastream.connectors.file_system BucketAssigner: base_path_bucket_assigner date_time_bucket_assigner
datastream.connectors.file_system FileSink: for_row_format
datastream.connectors.file_system FileSource: for_record_stream_format
datastream.connectors.file_system FileSourceBuilder: build process_static_file_set
datastream.connectors.file_system OutputFileConfig: builder
datastream.connectors.file_system RollingPolicy: default_rolling_policy on_checkpoint_rolling_policy
datastream.connectors.file_system StreamFormat: text_line_format
datastream.data_stream DataStream: sink_to
datastream.data_stream DataStreamSink: name
datastream.execution_mode RuntimeExecutionMode: AUTOMATIC
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_source
    get_execution_environment set_parallelism set_runtime_mode
"""

folder = tempfile.mkdtemp()
os.mkdir(f"{folder}/in")
for name, text in (("one", "first\nsecond\n\n"), ("two", "third without an end")):
    with open(f"{folder}/in/{name}.txt", "w") as file:
        file.write(text)


def written(path):
    """Return the lines below a folder that the sink shows, and how many folders are between."""
    files = [name for name in glob.glob(f"{path}/**/out-*.txt", recursive=True) if "/_" not in name]
    lines = []
    for name in files:
        with open(name) as opened:
            lines += opened.read().splitlines()
    return sorted(lines)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
source = FileSource.for_record_stream_format(StreamFormat.text_line_format("UTF-8"), f"{folder}/in")
source = source.process_static_file_set().build()
lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines", Types.STRING())
print(lines.get_type() == Types.STRING())
parts = OutputFileConfig.builder().with_part_prefix("out").with_part_suffix(".txt").build()
for name, assigner, policy in (
    ("plain", BucketAssigner.base_path_bucket_assigner(), RollingPolicy.default_rolling_policy()),
    ("dated", BucketAssigner.date_time_bucket_assigner(), RollingPolicy.on_checkpoint_rolling_policy()),
):
    sink = FileSink.for_row_format(f"{folder}/{name}", Encoder.simple_string_encoder())
    sink = sink.with_bucket_assigner(assigner).with_rolling_policy(policy).with_output_file_config(parts)
    lines.sink_to(sink.with_bucket_check_interval(60_000).build()).name(name)
env.execute("files")
print(written(f"{folder}/plain"))
print(written(f"{folder}/dated"), len(glob.glob(f"{folder}/dated/20*")))
