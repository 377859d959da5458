"""The generator of Nexmark's events. Each event is a function of the seed and of its number alone.

The constants are the defaults of the published generator: that of Apache Beam's Nexmark suite
(https://beam.apache.org/documentation/sdks/java/testing/nexmark/, ``NexmarkConfiguration`` and
``GeneratorConfig``), to which the suite for Flink (https://github.com/nexmark/nexmark) has added the channels
and URLs of bids. Both go back to Tucker, Tufte, Papadimos and Maier, "NEXMark - A Benchmark for Queries over
Data Streams". Names, words and padding are letters without meaning, as long as the published ones.

Random numbers come from a counter: SplitMix64's output function (Steele, Lea, Flood, "Fast Splittable
Pseudorandom Number Generators", 2014) of the seed, the event's number and the number of the draw. Any part of
the stream can therefore be made alone, and numpy draws for a block of events at once. Only sums, products and
shifts are done by numpy, which are exact to the bit everywhere; powers are Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from nexmark_suite.events import Auction, Bid, Event, Person

#: In 50 events: 1 person, then 3 auctions, then 46 bids.
PERSONS, AUCTIONS, BIDS = 1, 3, 46
EVENTS_IN_GROUP = PERSONS + AUCTIONS + BIDS

FIRST_PERSON_ID = FIRST_AUCTION_ID = 1000
FIRST_CATEGORY_ID, CATEGORIES = 10, 5
#: Ids that may be used this many ids before they exist.
PERSON_ID_LEAD = AUCTION_ID_LEAD = 10
#: People who may sell and bid, and auctions that are likely to be open.
ACTIVE_PEOPLE = 1000
AUCTIONS_IN_FLIGHT = 100

#: All but one in so many bids and auctions are for the hot auction, of the hot bidder, of the hot seller.
HOT_AUCTION_RATIO, HOT_BIDDER_RATIO, HOT_SELLER_RATIO = 2, 4, 4
#: The first auction (seller) of so many, and the second person as bidder, is the hot one.
HOT_BATCH = 100

HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
#: Half of the bids come through a hot channel.
HOT_CHANNELS_RATIO = 2
OTHER_CHANNELS = 10_000

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES, FIRST_NAMES, LAST_NAMES = 10, 11, 9

#: The average sizes of events in bytes, which padding makes up.
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
#: The sizes of what is not text: numbers and times.
_PERSON_NUMBERS, _AUCTION_NUMBERS, _BID_NUMBERS = 8, 48, 32

#: The time of the first event, 2015-07-15T00:00:00Z, as in Beam.
BASE_TIME_MS = 1_436_918_400_000

#: How many events are made at once.
_BLOCK = 4_096
_DRAWS_PER_EVENT = 16

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@attrs.frozen
class GeneratorConfig:
    """What decides the events.

    Attributes:
        events: how many there are.
        rate: events per second of event time.
        seed: of all random numbers.
        disorder: events come out of order within groups of so many; 1 for none. If the last group is not
            full, some of its events are left out.
    """

    events: int
    rate: int = 10_000
    seed: int = 42
    disorder: int = 1

    def time_of(self, number: Any) -> Any:
        """Return the event time of the event with a number, or of an array of numbers."""
        return BASE_TIME_MS + number * 1000 // self.rate

    @property
    def horizon_ms(self) -> int:
        """The time in which as many auctions begin as are in flight: the average length of an auction."""
        return AUCTIONS_IN_FLIGHT * EVENTS_IN_GROUP // AUCTIONS * 1000 // self.rate


def events_between(config: GeneratorConfig, first: int, stop: int) -> Iterator[Event]:
    """Yield the events from position ``first`` to before ``stop``, which no other range changes."""
    for start in range(first, stop, _BLOCK):
        yield from _block(config, np.arange(start, min(start + _BLOCK, stop)))


def _block(config: GeneratorConfig, positions: Integers) -> Iterator[Event]:
    numbers = numbers_at(config, positions)
    places = numbers % EVENTS_IN_GROUP
    kinds = np.searchsorted([PERSONS, PERSONS + AUCTIONS], places, side="right")
    made = [iter(make(Draws(config, numbers[kinds == kind]))) for kind, make in enumerate(_MAKERS)]
    return map(next, map(made.__getitem__, kinds.tolist()))


def numbers_at(config: GeneratorConfig, positions: Integers) -> Integers:
    """Return which events stand at the positions; the factor 953 is the published generator's."""
    group = config.disorder
    return positions // group * group + positions * 953 % group


class Draws:
    """The random numbers of some events: each call draws one more for each of them."""

    def __init__(self, config: GeneratorConfig, numbers: Integers) -> None:
        self.config = config
        self.numbers = numbers
        self.times: Integers = config.time_of(numbers)
        self._counter = numbers.astype(np.uint64) * np.uint64(_DRAWS_PER_EVENT)
        self._counter += np.uint64((config.seed << 40) % 2**64)

    def uniform(self) -> Floats:
        """Return a number from 0 to below 1 for each event."""
        mixed = _mixed(self._counter)
        self._counter = self._counter + np.uint64(1)
        return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bounds: Integers | int) -> Integers:
        """Return a whole number from 0 to below the bound for each event."""
        return (self.uniform() * bounds).astype(np.int64)

    def is_hot(self, ratio: int) -> NDArray[np.bool_]:
        """Return for each event whether its choice is the hot one, with probability 1 - 1 / ratio."""
        return self.below(ratio) > 0

    def price(self) -> list[int]:
        """Return a price from 1 to 1,000,000 dollars for each event; its logarithm is uniform."""
        return [round(100 * 10 ** (6 * u)) for u in self.uniform().tolist()]

    def text(self, longest: int, shortest: int = 3) -> list[str]:
        """Return ``shortest`` to below ``longest`` letters for each event."""
        return self.texts((shortest + self.below(longest - shortest)).tolist())

    def texts(self, lengths: Iterable[int]) -> list[str]:
        """Return letters for each event, of these lengths."""
        starts = self.below(len(_TEXT) - max(AUCTION_BYTES, PERSON_BYTES) * 2).tolist()
        return [_TEXT[start : start + length] for start, length in zip(starts, lengths, strict=True)]

    def padding(self, size: int, used: Integers | int) -> list[str]:
        """Return text that brings events of ``used`` bytes to ``size`` on average, a fifth up or down."""
        left = np.maximum(size - used, 0)
        spread = np.rint(left * 0.2).astype(np.int64)
        lengths: Any = left - spread + self.below(2 * spread)
        return self.texts(np.broadcast_to(lengths, self.numbers.shape).tolist())


def _mixed(counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's output for each counter."""
    x = (counters + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


# --- who and what there is when an event comes ----------------------------------------------------------


def last_person(numbers: Integers) -> Integers:
    """Return the number, from 0, of the newest person at each event, who may be the event itself."""
    return numbers // EVENTS_IN_GROUP


def last_auction(numbers: Integers) -> Integers:
    """Return the number, from 0, of the newest auction at each event; -1 before the first."""
    groups, places = np.divmod(numbers, EVENTS_IN_GROUP)
    return groups * AUCTIONS + np.minimum(places, AUCTIONS) - PERSONS


def _some_person(draws: Draws) -> Integers:
    """Return an active person, or one of the next few, for each event."""
    people = last_person(draws.numbers) + 1
    active = np.minimum(people, ACTIVE_PEOPLE)
    return people - active + draws.below(active + PERSON_ID_LEAD)


def _some_auction(draws: Draws) -> Integers:
    """Return an auction in flight, or one of the next few, for each event."""
    last = last_auction(draws.numbers)
    first = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
    return first + draws.below(last - first + 1 + AUCTION_ID_LEAD)


def _hot_or(draws: Draws, ratio: int, last: Integers, shift: int, other: Integers) -> list[int]:
    hot = last // HOT_BATCH * HOT_BATCH + shift
    chosen: list[int] = np.where(draws.is_hot(ratio), hot, other).tolist()
    return chosen


# --- events ---------------------------------------------------------------------------------------------


def _persons(draws: Draws) -> Iterable[Event]:
    first, last = draws.below(FIRST_NAMES).tolist(), draws.below(LAST_NAMES).tolist()
    names = [f"{_FIRST_NAMES[n]} {_LAST_NAMES[m]}" for n, m in zip(first, last, strict=True)]
    mails = [f"{who}@{where}.com" for who, where in zip(draws.text(7), draws.text(5), strict=True)]
    cards = [f"{n:016d}" for n in draws.below(10**16).tolist()]
    cities = [_CITIES[n] for n in draws.below(CITIES).tolist()]
    states = [STATES[n] for n in draws.below(len(STATES)).tolist()]
    texts = zip(names, mails, cards, cities, states, strict=True)
    used = np.array([_PERSON_NUMBERS + sum(map(len, row)) for row in texts], dtype=np.int64)
    ids = (FIRST_PERSON_ID + last_person(draws.numbers)).tolist()
    padding = draws.padding(PERSON_BYTES, used)
    return map(Person, ids, names, mails, cards, cities, states, draws.times.tolist(), padding)


def _auctions(draws: Draws) -> Iterable[Event]:
    sellers = _hot_or(draws, HOT_SELLER_RATIO, last_person(draws.numbers), 0, _some_person(draws))
    names, descriptions = draws.text(20), draws.text(100)
    initial = draws.price()
    reserves = [low + more for low, more in zip(initial, draws.price(), strict=True)]
    used = np.array([_AUCTION_NUMBERS + len(a) + len(b) for a, b in zip(names, descriptions, strict=True)])
    return map(
        Auction,
        (FIRST_AUCTION_ID + last_auction(draws.numbers)).tolist(),
        names,
        descriptions,
        initial,
        reserves,
        draws.times.tolist(),
        (draws.times + 1 + draws.below(max(2 * draws.config.horizon_ms, 1))).tolist(),
        [FIRST_PERSON_ID + seller for seller in sellers],
        (FIRST_CATEGORY_ID + draws.below(CATEGORIES)).tolist(),
        draws.padding(AUCTION_BYTES, used.astype(np.int64)),
    )


def _bids(draws: Draws) -> Iterable[Event]:
    auctions = _hot_or(draws, HOT_AUCTION_RATIO, last_auction(draws.numbers), 0, _some_auction(draws))
    bidders = _hot_or(draws, HOT_BIDDER_RATIO, last_person(draws.numbers), 1, _some_person(draws))
    hot, other = draws.below(len(HOT_CHANNELS)), len(HOT_CHANNELS) + draws.below(OTHER_CHANNELS)
    channels = np.where(draws.is_hot(HOT_CHANNELS_RATIO), hot, other).tolist()
    return map(
        Bid,
        [FIRST_AUCTION_ID + auction for auction in auctions],
        [FIRST_PERSON_ID + bidder for bidder in bidders],
        draws.price(),
        [_CHANNELS[n] for n in channels],
        [_URLS[n] for n in channels],
        draws.times.tolist(),
        draws.padding(BID_BYTES, _BID_NUMBERS),
    )


_MAKERS: list[Callable[[Draws], Iterable[Event]]] = [_persons, _auctions, _bids]


# --- words ----------------------------------------------------------------------------------------------


def _letters(count: int) -> str:
    codes = _mixed(np.arange(count, dtype=np.uint64)) % np.uint64(26) + np.uint64(ord("a"))
    return codes.astype(np.uint8).tobytes().decode("ascii")


#: All text of events is cut out of this.
_TEXT = _letters(1 << 16)


def _words(count: int, length: int, skip: int) -> list[str]:
    return [_TEXT[start : start + length] for start in range(skip, skip + count * length, length)]


_FIRST_NAMES = [word.title() for word in _words(FIRST_NAMES, 5, 0)]
_LAST_NAMES = [word.title() for word in _words(LAST_NAMES, 6, 100)]
_CITIES = [word.title() for word in _words(CITIES, 8, 200)]
_CHANNELS = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(OTHER_CHANNELS))]


def _url(number: int) -> str:
    """Return the URL of a channel; nine of ten that are not hot name their id in it."""
    folders = "/".join(_words(3, 5, 300 + 3 * number))
    other = number - len(HOT_CHANNELS)
    reversed_bits = int(f"{max(other, 0):032b}"[::-1], 2)
    suffix = f"&channel_id={reversed_bits}" if other >= 0 and other % 10 else ""
    return f"https://www.nexmark.com/{folders}/item.htm?query=1{suffix}"


_URLS = [_url(number) for number in range(len(_CHANNELS))]
