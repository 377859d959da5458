"""Global parameters of a job, read where functions with keys and without run."""

from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, MapFunction, ProcessFunction, StreamExecutionEnvironment

COVERS = """
common.execution_config ExecutionConfig: get_global_job_parameters set_global_job_parameters
common.typeinfo Types: STRING
datastream.functions KeyedProcessFunction: process_element
datastream.functions MapFunction: map
datastream.functions ProcessFunction: process_element
datastream.functions RuntimeContext: get_job_parameter
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection get_config
    get_execution_environment set_parallelism
"""


class Mapped(MapFunction):
    def open(self, runtime_context):
        self.suffix = runtime_context.get_job_parameter("suffix", "none")
        self.missing = runtime_context.get_job_parameter("missing", "default")

    def map(self, value):
        return f"{value}{self.suffix}{self.missing}"


class Processed(ProcessFunction):
    def open(self, runtime_context):
        self.limit = int(runtime_context.get_job_parameter("limit", "0"))

    def process_element(self, value, ctx):
        yield value, self.limit


class ByKey(KeyedProcessFunction):
    def open(self, runtime_context):
        self.limit = runtime_context.get_job_parameter("limit", "0")
        self.switch = runtime_context.get_job_parameter("switch", "?")

    def process_element(self, value, ctx):
        yield value, self.limit, self.switch


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
config = env.get_config()
print(config.get_global_job_parameters())
config.set_global_job_parameters({"limit": 3, "suffix": "!", "switch": "on"})
print(sorted(config.get_global_job_parameters().items()))
words = env.from_collection(["a", "b"], Types.STRING())
words.map(Mapped()).print()
words.process(Processed()).print()
words.key_by(lambda word: word).process(ByKey()).print()
env.execute()
