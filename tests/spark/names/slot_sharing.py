"""Slot sharing groups and sizes of memory."""

from pyflink.common import Types
from pyflink.datastream import MemorySize, SlotSharingGroup, StreamExecutionEnvironment

COVERS = """
common.typeinfo Types: INT
datastream.data_stream DataStream: slot_sharing_group
datastream.data_stream DataStreamSink: slot_sharing_group
datastream.slot_sharing_group MemorySize: get_bytes get_gibi_bytes get_kibi_bytes get_mebi_bytes
    get_tebi_bytes of_mebi_bytes
datastream.slot_sharing_group SlotSharingGroup: builder get_cpu_cores get_external_resources
    get_managed_memory get_name get_task_heap_memory get_task_off_heap_memory
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment register_slot_sharing_group set_parallelism
"""

size = MemorySize.of_mebi_bytes(3000)
print(
    size.get_bytes(),
    size.get_kibi_bytes(),
    size.get_mebi_bytes(),
    size.get_gibi_bytes(),
    size.get_tebi_bytes(),
)
print(
    str(size),
    str(MemorySize(bytes_size=2048)),
    str(MemorySize(bytes_size=2049)),
    str(MemorySize(bytes_size=0)),
)
print(str(MemorySize.of_mebi_bytes(2048)), str(MemorySize.of_mebi_bytes(1025 * 1024)))
print(size == MemorySize(bytes_size=3000 * 1024 * 1024), size < MemorySize.of_mebi_bytes(3001), size <= size)
print(hash(size) == hash(MemorySize.of_mebi_bytes(3000)))

group = SlotSharingGroup.builder("plain").build()
print(group.get_name(), group.get_cpu_cores(), group.get_task_heap_memory(), group.get_external_resources())
print(group.get_task_off_heap_memory(), group.get_managed_memory())


def full(name):
    return (
        SlotSharingGroup.builder(name)
        .set_cpu_cores(1.5)
        .set_task_heap_memory_mb(100)
        .set_task_off_heap_memory(MemorySize.of_mebi_bytes(20))
        .set_managed_memory_mb(30)
        .set_external_resource("gpu", 1.0)
        .build()
    )


group = full("full")
print(group.get_name(), group.get_cpu_cores(), group.get_task_heap_memory(), group.get_task_off_heap_memory())
print(
    group.get_managed_memory(), group.get_external_resources(), group == full("full"), group == full("other")
)
part = SlotSharingGroup.builder("part").set_cpu_cores(1.0).set_task_heap_memory_mb(1).build()
print(part.get_task_off_heap_memory(), part.get_managed_memory())
for builder in (
    SlotSharingGroup.builder("cores").set_cpu_cores(1.0),
    SlotSharingGroup.builder("heap").set_task_heap_memory_mb(1),
    SlotSharingGroup.builder("managed").set_managed_memory_mb(1),
):
    try:
        builder.build()
    except Exception:  # noqa: BLE001 - PyFlink passes on what Java raises
        print("refused")

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
plain = SlotSharingGroup.builder("default").build()
env.register_slot_sharing_group(plain)
numbers = env.from_collection([1], Types.INT()).map(lambda n: n + 1).slot_sharing_group(plain)
numbers.slot_sharing_group("default").print().slot_sharing_group("default")
env.execute()
