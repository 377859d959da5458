"""Sources and sinks of real systems, exactly once: a file for each system and direction.

Each needs packages of its own, which an extra brings: ``pip install 'pyflinkstate[sql]'``. They are imported
when a name is used first.
"""

from __future__ import annotations

from pyflinkstate.doors import on_first_use

#: The public names by the file that has them. ``scripts/write_stub.py`` makes ``__init__.pyi`` of it.
_FILES: dict[str, tuple[str, ...]] = {
    "delta_sink": ("DeltaSink",),
    "delta_source": ("DeltaSource",),
    "iceberg_sink": ("IcebergSink",),
    "iceberg_source": ("IcebergSource",),
    "kafka_sink": ("KafkaRecordSerializationSchema", "KafkaSink"),
    "kafka_source": ("KafkaOffsetsInitializer", "KafkaRecord", "KafkaSource"),
    "sql_sink": ("SqlSink",),
    "sql_source": ("SqlSource",),
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names}

__all__ = sorted(_FILE_OF)  # noqa: PLE0605 - derived, so that a name has one place

__getattr__ = on_first_use(__name__, _FILE_OF)
