"""A module, a folder, a zip and an archive that a program brings along, used where functions run."""

import os
import tempfile
import zipfile

from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment

COVERS = """
common.typeinfo Types: INT
datastream.functions KeyedProcessFunction: process_element
datastream.stream_execution_environment StreamExecutionEnvironment: add_python_archive add_python_file
    execute from_collection get_execution_environment set_parallelism
"""

folder = tempfile.mkdtemp()
os.mkdir(f"{folder}/several")
for path, text in {
    "brought_module.py": "def twice(number):\n    return 2 * number\n",
    "several/brought_from_folder.py": "NAME = 'folder'\n",
    "zipped.py": "NAME = 'zip'\n",
    "data.txt": "from the archive",
}.items():
    with open(f"{folder}/{path}", "w") as file:
        file.write(text)
with zipfile.ZipFile(f"{folder}/brought.zip", "w") as archive:
    archive.write(f"{folder}/zipped.py", "brought_from_zip.py")
with zipfile.ZipFile(f"{folder}/files.zip", "w") as archive:
    archive.write(f"{folder}/data.txt", "inner/data.txt")


def without_keys(number):
    from brought_from_folder import NAME
    from brought_module import twice

    with open("unpacked/inner/data.txt") as file:
        return NAME, twice(number), file.read()


class ByKey(KeyedProcessFunction):
    def process_element(self, value, ctx):
        from brought_from_folder import NAME as FOLDER
        from brought_from_zip import NAME as ZIP
        from brought_module import twice

        with open("files.zip/inner/data.txt") as file:
            yield FOLDER, ZIP, twice(value), file.read()


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.add_python_file(f"{folder}/brought_module.py")
env.add_python_file(f"{folder}/several")
env.add_python_file(f"{folder}/brought.zip")
env.add_python_archive(f"{folder}/files.zip", "unpacked")
env.add_python_archive(f"{folder}/files.zip")
numbers = env.from_collection([1, 2], Types.INT())
numbers.map(without_keys).print()
numbers.key_by(lambda number: number % 2).process(ByKey()).print()
env.execute()
