"""Keys as they are written on the command line: whatever is printed of one finds it again."""

from __future__ import annotations

import pytest
from backend_support import PICKLED
from type_samples import KEY_SAMPLES, Samples

from pyflinkstate.api.row import Row, names_of, row_of
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.backends.keys import KeyHasher
from pyflinkstate.errors import InvalidKeyError
from pyflinkstate.state_access.command_line.printing import json_text, readable
from pyflinkstate.state_access.command_line.written_keys import parsed_key


@pytest.mark.parametrize("samples", KEY_SAMPLES, ids=lambda samples: str(samples.type_info))
def test_what_is_printed_of_a_key_is_read_as_the_key(samples: Samples) -> None:
    hasher = KeyHasher(samples.type_info)
    for value in samples.fits:
        printed = readable(samples.type_info, value)
        written = printed if isinstance(printed, str) else json_text(printed)
        key = hasher.check(parsed_key(written, samples.type_info))
        if isinstance(value, Row):  # its kind is not printed
            value = row_of(tuple(value), names_of(value))
        assert key == value


@pytest.mark.parametrize("levels", [101, 100_000])
@pytest.mark.parametrize("key_type", [PICKLED, Types.TUPLE([Types.LONG()])], ids=str)
def test_json_that_is_nested_too_deeply_is_refused_in_words(levels: int, key_type: TypeInformation) -> None:
    with pytest.raises(InvalidKeyError, match="nested more than 100 levels deep"):
        parsed_key("[" * levels + "]" * levels, key_type)


def test_a_key_may_be_nested_as_deep_as_any_type_is() -> None:
    parsed_key("[" * 100 + "1" + "]" * 100, PICKLED)
