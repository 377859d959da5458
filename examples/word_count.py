"""Count words: the smallest job with keyed state.

    python examples/word_count.py [--input DIR] [--parallelism N] [--checkpoint-dir DIR] [--restore latest]

Every word gives its count so far. With --input the words are those of the descriptions of products.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import command_line
from retail import invoice_lines

from pyflinkstate.common import Types
from pyflinkstate.datastream import DataStream

SAMPLE = [
    "To be, or not to be, that is the question:",
    "Whether 'tis nobler in the mind to suffer",
    "The slings and arrows of outrageous fortune,",
    "Or to take arms against a sea of troubles,",
    "And by opposing end them. To die: to sleep;",
    "No more; and by a sleep to say we end",
    "The heart-ache and the thousand natural shocks",
    "That flesh is heir to, 'tis a consummation",
    "Devoutly to be wish'd. To die, to sleep;",
    "To sleep: perchance to dream: ay, there's the rub.",
]


def words_of(text: str) -> Iterator[tuple[str, int]]:
    for word in re.findall(r"[a-z']+", text.lower()):
        yield word, 1


def build(texts: DataStream) -> DataStream:
    """Return ``(word, count so far)`` for each word of the texts."""
    return texts.flat_map(words_of).key_by(lambda pair: pair[0], key_type=Types.STRING()).sum(1)


def main() -> None:
    args = command_line.parse("Count words.")
    env = command_line.environment(args)
    if args.input is None:
        texts = env.from_collection(SAMPLE)
    else:
        texts = invoice_lines(env, args.input, args.days).map(lambda line: line.description)
    build(texts).print()
    env.execute("word count")


if __name__ == "__main__":
    main()
