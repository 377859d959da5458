"""A few records of a stream as texts, for somebody who looks at them; otherwise nothing of this runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.values import Record
from pyflinkstate.runtime.wire import ColumnBatch, ValuesFrame, side_output_count

#: Maximum number of records that a task samples of each stream in an epoch.
MOST_RECORDS = 20
#: Length at which the text of a sample is cut, in characters.
MOST_CHARS = 300

#: Texts of records, by the ids of streams.
Samples = dict[str, list[str]]


def sample_records(records: Iterable[Record], stream: str, samples: Samples) -> Iterator[Record]:
    """Yield all records, and note the first of them on the way."""
    passing = iter(records)
    noted = samples.setdefault(stream, [])
    for record in islice(passing, MOST_RECORDS):
        noted.append(safe_repr(record, MOST_CHARS))
        yield record
    yield from passing


def sample_batches(batches: Iterable[ColumnBatch], stream: str, samples: Samples) -> Iterator[ColumnBatch]:
    """Yield all batches, and note the first of their records."""
    noted = samples.setdefault(stream, [])
    for batch in batches:
        if len(noted) < MOST_RECORDS:
            _add(batch.part(0, MOST_RECORDS).rows(), noted)
        yield batch


def sample_frames(frames: Iterable[bytes], stream: str, samples: Samples) -> Iterator[bytes]:
    """Yield all frames of values, and note the first of their records; side outputs apart."""
    passing = iter(frames)
    samples.setdefault(stream, [])
    for data in passing:
        _note(ValuesFrame.decode(data), stream, samples)
        yield data
        if len(samples[stream]) >= MOST_RECORDS:
            break
    yield from passing


def _note(frame: ValuesFrame, stream: str, samples: Samples) -> None:
    _add(frame.values, samples[stream])
    for tag_id, (values, _) in frame.side.items():
        _add(values, samples.setdefault(side_output_count(stream, tag_id), []))


def _add(values: Sequence[Record], noted: list[str]) -> None:
    noted.extend(safe_repr(value, MOST_CHARS) for value in values[: MOST_RECORDS - len(noted)])
