"""The family of errors: built-ins they stand for, pickling, and which of them a restart may cure."""

import ast
import copy
import inspect
import pickle
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pyflinkstate import errors

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, BaseException) and cls.__module__ == errors.__name__
]

#: What a restart from a checkpoint may cure: the user's code, storage and machines.
RECOVERABLE = [
    errors.UserFunctionError,
    errors.CheckpointStorageError,
    errors.SinkStorageError,
    errors.CheckpointFailuresExceededError,
    errors.RuntimeFailure,
    errors.SlotLostError,
    errors.StaleSlotError,
    errors.SparkJobError,
]

#: What it cannot: the same program, record or checkpoint would fail again.
NOT_RECOVERABLE = [
    errors.ConfigurationError,
    errors.ParallelismError,
    errors.PackageMismatchError,
    errors.StateAccessError,
    errors.NoCurrentKeyError,
    errors.ConcurrentModificationError,
    errors.StateRegistrationError,
    errors.StateMigrationError,
    errors.DescriptorTypeError,
    errors.BadRecordError,
    errors.InvalidKeyError,
    errors.StateValueError,
    errors.FunctionResultError,
    errors.RowError,
    errors.KeyGroupRangeError,
    errors.SnapshotCancelledError,
    errors.CheckpointNotFoundError,
    errors.CorruptCheckpointError,
    errors.IncompatibleCheckpointError,
    errors.UnknownOperatorError,
    errors.UnknownStateError,
    errors.PickledStateError,
    errors.StateTableError,
    errors.StateQueryError,
    errors.StateQueryTimeoutError,
    errors.JobFailedError,
    errors.ImpossibleEventError,
    errors.JobSupersededError,
    errors.SinkError,
    errors.StreamingQueryError,
]

every_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def test_the_family_is_found():
    assert errors.PyFlinkStateError in CLASSES
    assert len(CLASSES) >= 25


@every_class
def test_each_error_belongs_to_the_family(cls):
    assert issubclass(cls, errors.PyFlinkStateError)


@every_class
def test_each_error_says_whose_fault_it_is(cls):
    assert cls.__doc__
    if cls is not errors.PyFlinkStateError:
        assert cls.__doc__ != cls.__base__.__doc__


@every_class
def test_each_error_keeps_message_and_context(cls):
    error = cls("disk is full", file="chk-1/a", attempt=3)
    assert str(error) == "disk is full"
    assert error.message == "disk is full"
    assert error.args == ("disk is full",)
    assert error.context == {"file": "chk-1/a", "attempt": 3}


@every_class
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_each_error_pickles(cls, protocol):
    error = cls("disk is full", file="chk-1/a", attempt=3)
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is cls
    assert back.message == str(back) == "disk is full"
    assert back.context == {"file": "chk-1/a", "attempt": 3}


@every_class
def test_each_error_can_be_copied(cls):
    back = copy.copy(cls("late", timeout_ms=5))
    assert (type(back), back.message, back.context) == (cls, "late", {"timeout_ms": 5})


@every_class
def test_each_error_needs_no_context(cls):
    assert pickle.loads(pickle.dumps(cls("bare"))).context == {}


@pytest.mark.parametrize("cls", RECOVERABLE, ids=lambda cls: cls.__name__)
def test_what_a_restart_may_cure_is_recoverable(cls):
    assert cls.recoverable is True


@pytest.mark.parametrize("cls", NOT_RECOVERABLE, ids=lambda cls: cls.__name__)
def test_what_would_fail_again_is_not_recoverable(cls):
    assert cls.recoverable is False


@every_class
def test_recoverable_survives_pickling(cls):
    assert pickle.loads(pickle.dumps(cls("m"))).recoverable is cls.recoverable


@pytest.mark.parametrize(
    ("cls", "builtins"),
    [
        (errors.ConfigurationError, [ValueError]),
        (errors.ParallelismError, [errors.ConfigurationError]),
        (errors.UnsupportedSessionError, [errors.ConfigurationError]),
        (errors.PackageMismatchError, [errors.UnsupportedSessionError]),
        (errors.UnsupportedFeatureError, [errors.ConfigurationError, NotImplementedError]),
        (errors.StateAccessError, [RuntimeError]),
        (errors.NotKeyedStreamError, [errors.StateAccessError]),
        (errors.NoCurrentKeyError, [errors.StateAccessError]),
        (errors.ConcurrentModificationError, [errors.StateAccessError]),
        (errors.StateRegistrationError, [ValueError]),
        (errors.StateMigrationError, [errors.StateRegistrationError]),
        (errors.DescriptorTypeError, [errors.StateRegistrationError, TypeError, ValueError]),
        (errors.BadRecordError, [ValueError]),
        (errors.InvalidKeyError, [errors.BadRecordError]),
        (errors.StateValueError, [errors.BadRecordError, TypeError]),
        (errors.FunctionResultError, [errors.BadRecordError, TypeError]),
        (errors.RowError, [errors.BadRecordError, TypeError]),
        (errors.KeyGroupRangeError, [errors.BadRecordError]),
        (errors.MalformedRecordError, [errors.BadRecordError]),
        (errors.UserFunctionError, [RuntimeError]),
        (errors.CheckpointError, [RuntimeError]),
        (errors.CheckpointStorageError, [errors.CheckpointError, OSError]),
        (errors.SnapshotCancelledError, [errors.CheckpointError]),
        (errors.CheckpointNotFoundError, [errors.CheckpointError, FileNotFoundError]),
        (errors.CorruptCheckpointError, [errors.CheckpointError]),
        (errors.IncompatibleCheckpointError, [errors.CheckpointError]),
        (errors.UnknownOperatorError, [errors.CheckpointError, LookupError]),
        (errors.UnknownStateError, [errors.CheckpointError, LookupError]),
        (errors.StateQueryError, [RuntimeError]),
        (errors.StateQueryTimeoutError, [errors.StateQueryError, TimeoutError]),
        (errors.PickledStateError, [errors.CheckpointError, PermissionError]),
        (errors.StateTableError, [errors.CheckpointError, ValueError]),
        (errors.SinkError, [OSError]),
        (errors.RuntimeFailure, [RuntimeError]),
        (errors.SlotLostError, [errors.RuntimeFailure, ConnectionError]),
        (errors.JobFailedError, [RuntimeError]),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_each_error_is_also_the_builtin_that_it_is_a_kind_of(cls, builtins):
    for builtin in builtins:
        assert issubclass(cls, builtin)


def test_a_bad_record_is_not_an_error_of_the_program_or_of_the_machine():
    assert not issubclass(errors.BadRecordError, (errors.ConfigurationError, errors.RuntimeFailure))
    assert not issubclass(errors.CheckpointError, (errors.RuntimeFailure, errors.BadRecordError))


# --- the page on which users look them up ------------------------------------------------------------------

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
#: The parts of the page about one error: its name, and what is said of it.
ON_THE_PAGE = dict(
    re.findall(r"^### (\w+Error|RuntimeFailure)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
)


def texts_of(path: Path) -> Iterator[str]:
    """Yield the texts in a file of code; what is between the braces of an f-string is left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())


@cache
def texts_of_the_package() -> str:
    files = Path(errors.__file__).parent.rglob("*.py")
    return "\n".join(text for path in files for text in texts_of(path))


def test_each_error_has_its_place_on_the_page_and_none_is_invented():
    assert sorted(ON_THE_PAGE) == sorted(cls.__name__ for cls in CLASSES)


@every_class
def test_the_page_says_cause_and_remedy(cls):
    *_, cause, remedy = re.split(r"\n{2,}", ON_THE_PAGE[cls.__name__].strip())
    assert not cause.startswith((">", "#", "**"))
    assert remedy.startswith("**Remedy.** ")
    assert cls is errors.PyFlinkStateError or re.search("^> ", ON_THE_PAGE[cls.__name__], re.MULTILINE)


@every_class
def test_the_messages_on_the_page_are_those_of_the_code(cls):
    for message in re.findall("^> (.*)$", ON_THE_PAGE[cls.__name__], re.MULTILINE):
        for part in re.split("[…:;,()]|,? and ", message):  # what the code puts together there
            assert part.strip() in texts_of_the_package(), f"{message!r}: nothing says {part.strip()!r}"
