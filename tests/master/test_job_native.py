"""Jobs whose checkpoints are native: what lies in ``shared/``, and what each parallelism restores of it."""

from collections import Counter
from operator import itemgetter
from pathlib import Path

import attrs
import pytest
from operators import PaddedSum, running_sums
from support_job import JobRun, PacedSource, latest, once
from test_job_incremental import incremental, lies_in_shared, needed, without_inline_state

from pyflinkstate import HashMapStateBackend, Types
from pyflinkstate.backends.format import written_at
from pyflinkstate.backends.rocksdb import RocksDBStateBackend
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.plan import SourceNode, StatefulNode
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.state_access import open_checkpoint, verify

pytest.importorskip("rocksdict")
pytestmark = pytest.mark.timeout(120)

KEYS, EPOCHS, PER_EPOCH = 600, 12, 100
#: All keys at first, and few of them later, so that most files stay as they are.
RECORDS = [(f"key-{n if n < KEYS else n % 50}", n) for n in range(EPOCHS * PER_EPOCH)]
EXPECTED = Counter(running_sums(RECORDS))


@attrs.define
class Sums:
    """Runs a job again and again from its latest checkpoint, and looks at ``shared/`` before each epoch."""

    storage: object
    scratch: Path
    out: list = attrs.field(factory=list)
    bases: list = attrs.field(factory=list)

    def run(self, parallelism, is_on_disk, fails_at=None, **options):
        source = PacedSource(CollectionSource(RECORDS, PER_EPOCH), lambda: made.settled())
        node = StatefulNode(
            SourceNode(source, "records"), itemgetter(0), Types.STRING(), PaddedSum(), "process"
        )
        on_disk = RocksDBStateBackend(directories=(str(self.scratch),), memory_bytes=100_000)
        made = JobRun(
            node,
            out=self.out,
            storage=self.storage,
            parallelism=parallelism,
            state_backend=on_disk if is_on_disk else HashMapStateBackend(),
            checkpoints=incremental(materialization_interval=2, num_retained=2),
            restore=latest(self.storage) if self.out else None,
            **options,
        )
        made.runner.before = lambda request: self.look(request)
        if fails_at is None:
            made.run()
        else:
            made.runner.after = once(BadRecordError("bad input"), fails_at)
            made.fails(BadRecordError)
        return made

    def look(self, request):
        """Nothing lies there that is not needed, but what was written in the background just now."""
        job_id = Path(request.barrier.folder).parent.name
        extra = lies_in_shared(self.storage, job_id) - needed(self.storage, job_id)
        newest = max(self.storage.completed(job_id), default=0)
        assert {written_at(path) for path in extra} <= {newest - 1, newest}
        for number in self.storage.completed(job_id):
            (operator,) = self.storage.load(self.storage.uri_of(job_id, number)).operators
            self.bases += [
                subtask.managed_keyed for subtask in operator.subtasks if subtask.managed_keyed.native
            ]


def test_restores_at_every_parallelism_and_on_the_heap(tmp_path):
    sums = Sums(without_inline_state(tmp_path), tmp_path / "scratch")
    first = sums.run(2, True, fails_at=9)
    assert any(
        written_at(file.stream.path) < base.checkpoint_id for base in sums.bases for file in base.native.files
    ), "later bases refer to files of earlier ones"
    check_reading(sums.storage, first.job_id)
    restored = sums.bases.copy()
    sums.run(3, True, fails_at=10)
    assert {path for base in restored for path in paths_of(base)} & set(paths_of(sums.bases[-1]))
    sums.run(2, False, fails_at=11)
    last = sums.run(1, True)
    assert Counter(sums.out) == EXPECTED
    assert lies_in_shared(sums.storage, last.job_id) == needed(sums.storage, last.job_id)
    assert list((tmp_path / "scratch").iterdir()) == []


def paths_of(base):
    return [file.stream.path for file in base.native.files if file.name.endswith(".sst")]


def check_reading(storage, job_id):
    """Whoever reads checkpoints reads these too, and finds a file that is damaged."""
    newest = storage.completed(job_id)[-1]
    uri = storage.uri_of(job_id, newest)
    assert verify(uri).problems == []
    checkpoint, sums = open_checkpoint(uri), dict(running_sums(RECORDS[: newest * PER_EPOCH]))
    assert {row["key"]: row["sum"][0] for row in checkpoint.keyed("process-1").rows()} == sums
    (info,) = checkpoint.states("process-1")
    assert 0.5 * 1000 * KEYS < info.size_bytes <= sum(info.size_bytes for info in checkpoint.operators())
    (one,) = checkpoint.keyed("process-1", ["key-7"]).rows()
    assert one["sum"][0] == sums["key-7"]
    path = Path(uri, next(path for path in sorted(needed(storage, job_id, [newest]))))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert any(path.name in problem for problem in verify(uri).problems)
    path.write_bytes(data)
