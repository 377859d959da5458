"""Checkpoints that were damaged or forged: an error of the project's own, or the right values, and no harm.

Damage is found by checksums. A forged file has the right ones: its values may be anybody's, but nothing
outside of the checkpoint is read or deleted, nothing is loaded that the program has declared, and no length
is believed.
"""

from __future__ import annotations

import random
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from checkpoint_mutations import (
    FORGERIES,
    JOB,
    OUTSIDE,
    Checkpoint,
    damaged,
    head_of,
    nodes,
)
from support_runtime import tree
from tiers import cases

from pyflinkstate import Types
from pyflinkstate.api import StateKind
from pyflinkstate.backends.format import END_OF_STREAM, OperatorStateCodec, StateCodec
from pyflinkstate.backends.format.framing import encode_head
from pyflinkstate.backends.types import (
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    RegisteredStateMeta,
)
from pyflinkstate.errors import CheckpointError, CorruptCheckpointError, PyFlinkStateError
from pyflinkstate.runtime.storage import CheckpointFolders

pytestmark = pytest.mark.usefixtures("nothing_unpickled")

OTHER_JOB = "f" * 32


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A checkpoint with other people's files around it."""
    made = Checkpoint.written(tmp_path / "root")
    for place in ("", "root", f"root/{JOB}", f"root/{OTHER_JOB}/shared", f"root/{OTHER_JOB}/chk-1"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / OUTSIDE).write_bytes(b"somebody else's")
    return made


def others(checkpoint: Checkpoint, tmp_path: Path) -> dict[str, bytes]:
    """What is not the checkpoint's own."""
    own = {str((checkpoint.folder / name).resolve()) for name in checkpoint.files}
    return {
        str(path): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and str(path) not in own and "chk-1" not in str(path.parent.name + path.name)
    }


def write(checkpoint: Checkpoint, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (checkpoint.folder / name).write_bytes(data)


def check_harmless(checkpoint: Checkpoint, tmp_path: Path, seed: int, deletes: bool) -> bool:
    """Restore, and delete if asked to; return whether that went well."""
    before = others(checkpoint, tmp_path)
    restored = True
    try:
        checkpoint.restore()
    except PyFlinkStateError:
        restored = False
    if deletes:
        with suppress(CheckpointError):
            checkpoint.subsume()
    assert others(checkpoint, tmp_path) == before, f"seed {seed} reached what is not the checkpoint's"
    return restored


def damage_rounds(checkpoint: Checkpoint, seeds: range) -> int:
    """Damage a file in each round; return how many were found out. All others gave the right values."""
    right, found = checkpoint.restore(), 0
    for number in seeds:
        seed = random.Random(number)
        name = seed.choice(checkpoint.names())
        write(checkpoint, {name: damaged(checkpoint.files[name], seed)})
        try:
            assert checkpoint.restore() == right, f"seed {number}: wrong values"
        except CheckpointError:
            found += 1
        checkpoint.put_back({name})
    return found


def forgery_rounds(checkpoint: Checkpoint, tmp_path: Path, seeds: range) -> int:
    """Forge in each round, restore and delete; return how many restored."""
    restored = 0
    for number in seeds:
        seed = random.Random(number)
        forgery = seed.choice(FORGERIES)(checkpoint, seed)
        write(checkpoint, forgery)
        restored += check_harmless(checkpoint, tmp_path, number, deletes=number % 4 == 0)
        checkpoint.put_back(set(forgery) | checkpoint.missing())
    return restored


def test_the_checkpoint_is_whole_when_nobody_touches_it(checkpoint: Checkpoint, tmp_path: Path) -> None:
    content = checkpoint.restore()
    assert len(content["total"]) == 25
    assert content["rules"] == {"0": 20, "20": 5}
    before = others(checkpoint, tmp_path)
    checkpoint.subsume()
    assert set(checkpoint.files) == checkpoint.missing()
    assert others(checkpoint, tmp_path) == before


@pytest.mark.parametrize("block", cases(range(5), quick=[0]))
def test_damage_is_found_or_does_not_matter(checkpoint: Checkpoint, block: int) -> None:
    assert damage_rounds(checkpoint, range(60 * block, 60 * (block + 1))) > 30


@pytest.mark.parametrize("block", cases(range(5), quick=[0]))
def test_forgeries_do_no_harm(checkpoint: Checkpoint, tmp_path: Path, block: int) -> None:
    assert 0 < forgery_rounds(checkpoint, tmp_path, range(100 * block, 100 * (block + 1))) < 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_20_000_mutations(checkpoint: Checkpoint, tmp_path: Path) -> None:
    assert damage_rounds(checkpoint, range(1_000, 8_000)) > 4_000
    assert 0 < forgery_rounds(checkpoint, tmp_path, range(10_000, 23_000)) < 12_000


# --- paths ---------------------------------------------------------------------------------------------

PATHS = [
    *(f"../{OUTSIDE}", f"../../{OUTSIDE}", f"../shared/../../{OUTSIDE}", f"../shared/../{OUTSIDE}"),
    *(f"../../{OTHER_JOB}/shared/{OUTSIDE}", f"../../../{OUTSIDE}", f"./{OUTSIDE}", f"x/../{OUTSIDE}"),
    *("/etc/passwd", f"file:///{OUTSIDE}", f"s3://bucket/{OUTSIDE}", f"c:{OUTSIDE}", f"\\\\host\\{OUTSIDE}"),
    *(f"{OUTSIDE}\0", f"{OUTSIDE}\n", "_metadata", "../shared/", "", ".", "..", OUTSIDE.upper()[:-1] + "G"),
    *("٣" * 32, f"../shared/-{OUTSIDE}", f"../shared/{'9' * 30}-{OUTSIDE}"),
]


def with_path(checkpoint: Checkpoint, path: Any, kind: str) -> dict[str, bytes]:
    """Return the metadata in which the files of ``kind`` have another path."""
    magic, version, content, _ = head_of(checkpoint.files["_metadata"])
    for holder, name in nodes(content):
        if name == "path" and holder[name].startswith("../shared/") == (kind == "shared"):
            holder[name] = path
    return {"_metadata": encode_head(magic, version, content)}


@pytest.mark.parametrize("kind", ["shared", "own"])
@pytest.mark.parametrize("path", PATHS, ids=ascii)
def test_a_path_that_leads_elsewhere_is_refused_and_named(
    checkpoint: Checkpoint, tmp_path: Path, path: str, kind: str
) -> None:
    write(checkpoint, with_path(checkpoint, path, kind))
    with pytest.raises(CorruptCheckpointError, match="leads out of the checkpoint") as caught:
        checkpoint.restore()
    assert str(checkpoint.folder / "_metadata") in str(caught.value)
    assert repr(path) in str(caught.value)
    check_harmless(checkpoint, tmp_path, 0, deletes=True)


@pytest.mark.parametrize(
    "paths", [["../../" + OUTSIDE], ["../shared/../" + OUTSIDE], [OUTSIDE], ["/" + OUTSIDE]]
)
def test_what_is_no_shared_file_is_not_deleted_whoever_says_so(
    checkpoint: Checkpoint, tmp_path: Path, paths: list[str]
) -> None:
    before = tree(tmp_path)
    with pytest.raises(CorruptCheckpointError, match="not a shared file of a job"):
        checkpoint.storage.discard_shared(JOB, paths)
    assert tree(tmp_path) == before


def test_what_no_job_wrote_is_not_among_the_shared_files(checkpoint: Checkpoint) -> None:
    """They are what a sweep deletes."""
    strange = checkpoint.folder / "../shared/notes.txt"
    strange.write_bytes(b"mine")
    paths = checkpoint.storage.shared_paths(JOB)
    assert paths == {name for name in checkpoint.files if name.startswith("../shared/")}
    checkpoint.storage.discard_shared(JOB, sorted(paths))
    assert [path.name for path in strange.parent.iterdir()] == ["notes.txt"]


# --- links ---------------------------------------------------------------------------------------------


def test_a_state_file_that_is_a_link_is_not_read(checkpoint: Checkpoint, tmp_path: Path) -> None:
    for name in set(checkpoint.files) - {"_metadata"}:
        outside = tmp_path / "elsewhere"
        outside.write_bytes(checkpoint.files[name])
        file = checkpoint.folder / name
        file.unlink()
        file.symlink_to(outside)
        with pytest.raises(CorruptCheckpointError, match="symbolic link"):
            checkpoint.restore()
        file.unlink()
        checkpoint.put_back({name})


def test_a_shared_folder_that_is_a_link_is_not_followed(checkpoint: Checkpoint, tmp_path: Path) -> None:
    shared = checkpoint.folder.parent / "shared"
    shared.rename(tmp_path / "elsewhere")
    shared.symlink_to(tmp_path / "elsewhere")
    before = tree(tmp_path / "elsewhere")
    with pytest.raises(CorruptCheckpointError, match="symbolic link"):
        checkpoint.restore()
    with pytest.raises(CorruptCheckpointError, match="symbolic link"):
        checkpoint.storage.discard_shared(JOB, sorted(f for f in checkpoint.files if "shared" in f))
    assert tree(tmp_path / "elsewhere") == before


def test_a_checkpoint_folder_that_is_a_link_is_not_deleted(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.folder.rename(tmp_path / "elsewhere")
    checkpoint.folder.symlink_to(tmp_path / "elsewhere")
    before = tree(tmp_path / "elsewhere")
    with pytest.raises(CorruptCheckpointError, match="symbolic link"):
        checkpoint.storage.discard(str(checkpoint.folder))
    assert tree(tmp_path / "elsewhere") == before


def test_what_a_link_in_a_checkpoint_leads_to_outlives_it(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_bytes(b"mine")
    (checkpoint.folder / "link").symlink_to(tmp_path / "elsewhere")
    (checkpoint.folder / "file link").symlink_to(tmp_path / "elsewhere" / "kept")
    checkpoint.storage.discard(str(checkpoint.folder))
    assert not checkpoint.folder.exists()
    assert (tmp_path / "elsewhere" / "kept").read_bytes() == b"mine"


def test_a_directory_that_is_reached_through_a_link_works(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """The link is the user's choice: only what lies below the directory must be the job's own."""
    (tmp_path / "link").symlink_to(tmp_path / "root")
    through = Checkpoint(
        CheckpointFolders(str(tmp_path / "link")), tmp_path / "link" / JOB / "chk-2", checkpoint.files
    )
    assert through.restore() == checkpoint.restore()
    through.subsume()
    assert checkpoint.missing() == set(checkpoint.files)


# --- ids -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("job_id", value) for value in ("../" + JOB, JOB[:-1], JOB.upper(), "", None, 7, "x" * 32)),
        *(("checkpoint_id", value) for value in (-1, "1", 2**63, 1.5, None, True)),
        *(("epoch", value) for value in (-1, "1", None)),
        ("job_name", None),
        ("counters", {"a": "b"}),
        ("watermarks", {"a": 2**63}),
    ],
    ids=str,
)
def test_an_id_or_number_that_can_be_none_is_refused(
    checkpoint: Checkpoint, field: str, value: object
) -> None:
    magic, version, content, _ = head_of(checkpoint.files["_metadata"])
    write(checkpoint, {"_metadata": encode_head(magic, version, {**content, field: value})})
    with pytest.raises(CorruptCheckpointError, match="does not make sense"):
        checkpoint.restore()


@pytest.mark.parametrize("changes", [{"job_id": OTHER_JOB}, {"checkpoint_id": 3}], ids=str)
def test_a_checkpoint_in_the_folder_of_another_is_refused(
    checkpoint: Checkpoint, changes: dict[str, Any]
) -> None:
    """It would be deleted, and others with it, in the name of another job."""
    magic, version, content, _ = head_of(checkpoint.files["_metadata"])
    write(checkpoint, {"_metadata": encode_head(magic, version, {**content, **changes})})
    with pytest.raises(CorruptCheckpointError, match="is in another's folder"):
        checkpoint.restore()


def test_folders_that_are_no_jobs_are_not_looked_into(checkpoint: Checkpoint) -> None:
    strange = checkpoint.folder.parent.parent / "notes" / "chk-9"
    strange.mkdir(parents=True)
    (strange / "_metadata").write_bytes(b"no metadata")
    assert checkpoint.storage.load_latest("orders")[0].checkpoint_id == 2


# --- lengths -------------------------------------------------------------------------------------------


def test_no_length_is_believed(checkpoint: Checkpoint) -> None:
    """Of a section that says it has 2 ** 60 bytes, no more are asked for than the file has."""
    magic, version, content, _ = head_of(checkpoint.files["_metadata"])
    for holder, name in nodes(content):
        value = holder[name]
        if isinstance(value, list) and len(value) == 3 and all(type(part) is int for part in value):
            holder[name] = [value[0], 2**60, value[2]]
    write(checkpoint, {"_metadata": encode_head(magic, version, content)})
    with pytest.raises(CorruptCheckpointError, match="truncated"):
        checkpoint.restore()


def test_deep_nesting_is_refused(checkpoint: Checkpoint) -> None:
    magic, version, _, _ = head_of(checkpoint.files["_metadata"])
    body = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    framed = magic + version.to_bytes(2, "big") + len(body).to_bytes(4, "big") + body
    write(checkpoint, {"_metadata": framed + zlib.crc32(framed).to_bytes(4, "big")})
    with pytest.raises(CorruptCheckpointError, match="does not make sense"):
        checkpoint.restore()


@pytest.mark.parametrize(
    "codec",
    [
        StateCodec(Types.STRING(), RegisteredStateMeta("count", StateKind.VALUE, Types.LONG())),
        OperatorStateCodec(
            RegisteredOperatorStateMeta(
                "names", OperatorStateMode.SPLIT_DISTRIBUTE, Types.LIST(Types.STRING())
            )
        ),
    ],
    ids=lambda codec: type(codec).__name__,
)
def test_a_section_that_ends_before_its_batch_is_refused(codec: StateCodec | OperatorStateCodec) -> None:
    with pytest.raises(CorruptCheckpointError, match=r"the file is damaged.*cut short"):
        codec.read(END_OF_STREAM, zlib.crc32(END_OF_STREAM), "the file")
