"""The schemas and the encoder that programs import, and a sink that writes with one."""

import glob
import tempfile

from pyflink.common import Encoder, SimpleStringSchema, Types
from pyflink.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    RowFieldExtractorSchema,
    SerializationSchema,
)
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, OutputFileConfig

COVERS = """
common.serialization ByteArraySchema
common.serialization DeserializationSchema
common.serialization Encoder: simple_string_encoder
common.serialization RowFieldExtractorSchema
common.serialization SerializationSchema
common.serialization SimpleStringSchema
common.typeinfo Types: STRING
datastream.connectors.file_system FileSink: for_row_format
datastream.connectors.file_system OutputFileConfig: OutputFileConfigBuilder get_part_prefix get_part_suffix
datastream.data_stream DataStream: sink_to
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
"""

for schema in (
    SimpleStringSchema(),
    SimpleStringSchema("ISO-8859-1"),
    ByteArraySchema(),
    RowFieldExtractorSchema(1),
):
    print(
        type(schema).__name__,
        isinstance(schema, SerializationSchema),
        isinstance(schema, DeserializationSchema),
    )
try:
    RowFieldExtractorSchema(-1)
except ValueError:
    print("refused")

names = OutputFileConfig.OutputFileConfigBuilder().with_part_prefix("prefix").with_part_suffix(".ext").build()
print(names.get_part_prefix(), names.get_part_suffix())

folder = tempfile.mkdtemp()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection(["a", "b"], Types.STRING()).sink_to(
    FileSink.for_row_format(folder, Encoder.simple_string_encoder("UTF-8"))
    .with_output_file_config(names)
    .build()
)
env.execute()
files = glob.glob(f"{folder}/*/prefix-*")
print(all(file.endswith(".ext") for file in files))
lines = []
for name in files:
    with open(name) as file:
        lines += file.read().split()
print(sorted(lines))
