"""PyFlink's ``pyflink.datastream.connectors.kafka``."""

from pyflinkstate.connectors.kafka_sink import (
    KafkaRecordSerializationSchema as KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder as KafkaRecordSerializationSchemaBuilder,
    KafkaSink as KafkaSink,
    KafkaSinkBuilder as KafkaSinkBuilder,
    KafkaTopicSelector as KafkaTopicSelector,
)
from pyflinkstate.connectors.kafka_source import (
    KafkaOffsetResetStrategy as KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer as KafkaOffsetsInitializer,
    KafkaRecord as KafkaRecord,
    KafkaSource as KafkaSource,
    KafkaSourceBuilder as KafkaSourceBuilder,
    KafkaTopicPartition as KafkaTopicPartition,
)
