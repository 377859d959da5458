# Written by scripts/write_stub.py.

from pyflinkstate.connectors.delta_sink import DeltaSink as DeltaSink
from pyflinkstate.connectors.delta_source import DeltaSource as DeltaSource
from pyflinkstate.connectors.iceberg_sink import IcebergSink as IcebergSink
from pyflinkstate.connectors.iceberg_source import IcebergSource as IcebergSource
from pyflinkstate.connectors.kafka_sink import KafkaRecordSerializationSchema as KafkaRecordSerializationSchema
from pyflinkstate.connectors.kafka_sink import KafkaSink as KafkaSink
from pyflinkstate.connectors.kafka_source import KafkaOffsetsInitializer as KafkaOffsetsInitializer
from pyflinkstate.connectors.kafka_source import KafkaRecord as KafkaRecord
from pyflinkstate.connectors.kafka_source import KafkaSource as KafkaSource
from pyflinkstate.connectors.sql_sink import SqlSink as SqlSink
from pyflinkstate.connectors.sql_source import SqlSource as SqlSource
