"""Runs the programs of ``random_programs`` on an environment.

It uses nothing but PyFlink's names, so that the same code runs on PyFlink when ``pyflinkstate`` is replaced
by ``pyflink`` in its imports: ``scripts/record_pyflink_answers.py`` does that.
"""

from __future__ import annotations

from pyflinkstate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    ReducingStateDescriptor,
    SlidingEventTimeWindows,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WindowFunction,
)

PRIME = 10007
RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())


def outputs_of(stream, program):
    """Return the outputs of a program by name, given its records as a stream with timestamps."""
    outputs = {}
    for number, (name, *arguments) in enumerate(program["steps"]):
        stream, more = STEPS[name](stream, number, *arguments)
        outputs.update(more)
    outputs["main"] = stream
    return outputs


def tagged(outputs, seed):
    """Return all outputs as one stream of seed, name of the output, and record."""
    named = [stream.map(Named(seed, name)) for name, stream in outputs.items()]
    return named[0].union(*named[1:]) if len(named) > 1 else named[0]


class Named:
    """Puts seed and name before a record."""

    def __init__(self, seed, name):
        self.seed, self.name = seed, name

    def __call__(self, record):
        return self.seed, self.name, list(record)


def key_of(record):
    return record[0]


def keyed(stream):
    return stream.key_by(key_of, key_type=Types.LONG())


# --- without state ----------------------------------------------------------------------------------------


def map_step(stream, number, factor, addend):
    return stream.map(lambda r: (r[0], (r[1] * factor + addend) % PRIME, r[2])), {}


def filter_step(stream, number, modulus, rest):
    return stream.filter(lambda r: r[1] % modulus != rest), {}


def flat_map_step(stream, number, modulus):
    return stream.flat_map(lambda r: [(r[0], r[1] + times, r[2]) for times in range(r[1] % modulus)]), {}


def rekey_step(stream, number, modulus):
    return stream.map(lambda r: ((r[1] + r[0]) % modulus, r[1], r[2])), {}


class Stamp(ProcessFunction):
    """Replaces the time in a record by its timestamp."""

    def process_element(self, value, ctx):
        yield value[0], value[1], ctx.timestamp()


def stamp_step(stream, number):
    return stream.process(Stamp()), {}


class Side(ProcessFunction):
    """Sends some records to a side output."""

    def __init__(self, tag, modulus, rest):
        self.tag, self.modulus, self.rest = tag, modulus, rest

    def process_element(self, value, ctx):
        if value[1] % self.modulus == self.rest:
            yield self.tag, value
        else:
            yield value


def side_step(stream, number, modulus, rest):
    tag = OutputTag(f"side-{number}", Types.PICKLED_BYTE_ARRAY())
    main = stream.process(Side(tag, modulus, rest))
    return main, {f"side-{number}": main.get_side_output(tag)}


# --- keyed state ------------------------------------------------------------------------------------------


class SumAndCount(AggregateFunction):
    """Sum and count as one number."""

    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return (accumulator[0] + number_of(value)) % PRIME, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] * 100 + accumulator[1]

    def merge(self, acc_a, acc_b):
        return (acc_a[0] + acc_b[0]) % PRIME, acc_a[1] + acc_b[1]


def number_of(value):
    return value if isinstance(value, int) else value[1]


def combine(first, second):
    return (first * 3 + second) % PRIME


class States(KeyedProcessFunction):
    """Emits what a state of one kind has after each record, and clears it now and then."""

    def __init__(self, kind, modulus):
        self.kind, self.modulus = kind, modulus

    def open(self, runtime_context):
        if self.kind == "value":
            self.state = runtime_context.get_state(ValueStateDescriptor("s", Types.LONG()))
        elif self.kind == "list":
            self.state = runtime_context.get_list_state(ListStateDescriptor("s", Types.LONG()))
        elif self.kind == "map":
            self.state = runtime_context.get_map_state(MapStateDescriptor("s", Types.LONG(), Types.LONG()))
        elif self.kind == "reducing":
            self.state = runtime_context.get_reducing_state(
                ReducingStateDescriptor("s", combine, Types.LONG())
            )
        else:
            self.state = runtime_context.get_aggregating_state(
                AggregatingStateDescriptor("s", SumAndCount(), Types.PICKLED_BYTE_ARRAY())
            )

    def process_element(self, value, ctx):
        yield ctx.get_current_key(), getattr(self, f"_{self.kind}")(value[1]), value[2]
        if value[1] % self.modulus == 0:
            self.state.clear()

    def _value(self, number):
        self.state.update(combine(self.state.value() or 0, number))
        return self.state.value()

    def _list(self, number):
        self.state.add(number)
        kept = list(self.state.get())
        if len(kept) > 4:
            self.state.update(kept[-2:])
        elif number % 5 == 0:
            self.state.add_all([1, number])
        return sum(place * item for place, item in enumerate(self.state.get(), 1)) % PRIME

    def _map(self, number):
        place = number % 4
        self.state.put(place, (self.state.get(place) or 0) + number)
        if number % 9 == 0 and self.state.contains((place + 1) % 4):
            self.state.remove((place + 1) % 4)
        if number % 7 == 0:
            self.state.remove(place)
        total = sum((at + 1) * item for at, item in sorted(self.state.items()))
        return (total * 2 + self.state.is_empty() + 10 * len(list(self.state.keys()))) % PRIME

    def _reducing(self, number):
        self.state.add(number)
        return self.state.get()

    def _aggregating(self, number):
        self.state.add(number)
        return self.state.get()


def state_step(stream, number, kind, modulus):
    return keyed(stream).process(States(kind, modulus)), {}


def add_records(first, second):
    return first[0], (first[1] + second[1]) % PRIME, max(first[2], second[2])


def rolling_step(stream, number, how):
    if how == "reduce":
        return keyed(stream).reduce(add_records), {}
    return getattr(keyed(stream), how)(1), {}


class Timers(KeyedProcessFunction):
    """Sums up the values of a key, and emits the sum when a timer fires."""

    def __init__(self, mode, delay, grid, emits):
        self.mode, self.delay, self.grid, self.emits = mode, delay, grid, emits

    def open(self, runtime_context):
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self.timer = runtime_context.get_state(ValueStateDescriptor("timer", Types.LONG()))
        self.fired = runtime_context.get_state(ValueStateDescriptor("fired", Types.LONG()))

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value[1])
        time = (ctx.timestamp() + self.delay) // self.grid * self.grid
        if self.mode == "debounce" and self.timer.value() is not None:
            ctx.timer_service().delete_event_time_timer(self.timer.value())
        ctx.timer_service().register_event_time_timer(time)
        self.timer.update(time)
        if self.emits:
            yield value[0], self.sum.value() % PRIME, value[2]

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), (self.sum.value() or 0) % PRIME, timestamp
        fired = (self.fired.value() or 0) + 1
        self.fired.update(fired)
        if self.mode == "clear":
            self.sum.clear()
        elif self.mode == "repeat" and fired % 3:
            ctx.timer_service().register_event_time_timer(timestamp + self.delay + 1)


def timers_step(stream, number, mode, delay, grid, emits):
    return keyed(stream).process(Timers(mode, delay, grid, emits)), {}


# --- two inputs -------------------------------------------------------------------------------------------


class Other(CoMapFunction):
    """Changes the records of two inputs in two ways."""

    def map1(self, value):
        return value[0], (value[1] + 1) % PRIME, value[2]

    def map2(self, value):
        return value[0], (value[1] * 2) % PRIME, value[2]


class Others(CoFlatMapFunction):
    """Repeats the records of one input, and drops some of the other."""

    def flat_map1(self, value):
        yield value
        yield value[0], value[1] + 1, value[2]

    def flat_map2(self, value):
        if value[1] % 2:
            yield value


class CoStates(KeyedCoProcessFunction):
    """Each input has a state of its own; with timers, the sum of both is emitted."""

    def __init__(self, has_timers):
        self.has_timers = has_timers

    def open(self, runtime_context):
        self.first = runtime_context.get_state(ValueStateDescriptor("first", Types.LONG()))
        self.second = runtime_context.get_state(ValueStateDescriptor("second", Types.LONG()))

    def process_element1(self, value, ctx):
        return self._emit(self.first, value, ctx)

    def process_element2(self, value, ctx):
        return self._emit(self.second, value, ctx)

    def _emit(self, state, value, ctx):
        state.update((state.value() or 0) + value[1])
        if self.has_timers:
            ctx.timer_service().register_event_time_timer(ctx.timestamp() // 10 * 10)
            return []
        return [(value[0], state.value() % PRIME, value[2])]

    def on_timer(self, timestamp, ctx):
        total = (self.first.value() or 0) * 2 + (self.second.value() or 0)
        return [(ctx.get_current_key(), total % PRIME, timestamp)]


class Rules(KeyedBroadcastProcessFunction):
    """Broadcast records are rules, which the timers of keyed records read after all of them have come."""

    def open(self, runtime_context):
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        yield value

    def process_broadcast_element(self, value, ctx):
        rules = ctx.get_broadcast_state(RULES)
        rules.put(value[0], (rules.get(value[0]) or 0) + value[1])
        yield value[0], value[1] + 7, value[2]

    def on_timer(self, timestamp, ctx):
        rules = ctx.get_broadcast_state(RULES)
        rule = rules.get(ctx.get_current_key()) if rules.contains(ctx.get_current_key()) else 0
        yield ctx.get_current_key(), (self.sum.value() * 5 + rule) % PRIME, timestamp


class PlainRules(BroadcastProcessFunction):
    """The same for records without keys, which cannot read rules in a defined order."""

    def process_element(self, value, ctx):
        yield value

    def process_broadcast_element(self, value, ctx):
        yield value[0], value[1] + 7, value[2]


def two_step(stream, number, kind, modulus):
    first = stream.filter(lambda r: r[1] % modulus == 0)
    second = stream.filter(lambda r: r[1] % modulus != 0)
    if kind == "union":
        return first.map(lambda r: (r[0], r[1] + 1, r[2])).union(second), {}
    if kind == "broadcast":
        rules = keyed(first).connect(second.broadcast(RULES)).process(Rules())
        plain = first.connect(second.broadcast(RULES)).process(PlainRules())
        return rules, {f"plain-{number}": plain}
    both = first.connect(second)
    if kind == "co_map":
        return both.map(Other()), {}
    if kind == "co_flat_map":
        return both.flat_map(Others()), {}
    both = both.key_by(key_of, key_of, key_type=Types.LONG())
    return both.process(CoStates(kind == "co_timers")), {}


# --- windows ----------------------------------------------------------------------------------------------


def polynomial(values):
    result = 0
    for value in values:
        result = combine(result, value)
    return result


def end_of(window):
    """Return the end of a window; windows of counts have none."""
    return getattr(window, "end", 0)


class Elements(ProcessWindowFunction):
    """Emits one number that depends on the order of the elements, or on the elements only."""

    def __init__(self, is_sorted=False):
        self.is_sorted = is_sorted

    def process(self, key, context, elements):
        values = [element[1] for element in elements]
        yield key, polynomial(sorted(values) if self.is_sorted else values), end_of(context.window())


class Firings(ProcessWindowFunction):
    """Counts the firings of a window and of all windows of a key."""

    def open(self, runtime_context):
        self.number = ValueStateDescriptor("number", Types.LONG())
        self.total = ValueStateDescriptor("total", Types.LONG())

    def process(self, key, context, elements):
        counts = []
        for store, what in ((context.window_state(), self.number), (context.global_state(), self.total)):
            state = store.get_state(what)
            state.update((state.value() or 0) + 1)
            counts.append(state.value())
        values = polynomial(element[1] for element in elements)
        yield key, (values * 100 + counts[0] * 10 + counts[1]) % PRIME, end_of(context.window())

    def clear(self, context):
        context.window_state().get_state(self.number).clear()


class Applied(WindowFunction):
    """Emits one number that depends on the order of the elements."""

    def apply(self, key, window, inputs):
        yield key, polynomial(element[1] for element in inputs), end_of(window)


class Results(ProcessWindowFunction):
    """Emits results that were combined before, with the end of their window."""

    def process(self, key, context, elements):
        for element in elements:
            yield key, number_of(element) % PRIME, end_of(context.window())


class AppliedResults(WindowFunction):
    """The same as a WindowFunction."""

    def apply(self, key, window, inputs):
        for element in inputs:
            yield key, number_of(element) % PRIME, end_of(window)


class Records(SumAndCount):
    """An aggregate whose result is a record."""

    def create_accumulator(self):
        return 0, 0, 0, 0

    def add(self, value, accumulator):
        total, count, _, latest = accumulator
        return (total + value[1]) % PRIME, count + 1, value[0], max(latest, value[2])

    def get_result(self, accumulator):
        total, count, key, latest = accumulator
        return key, total * 100 + count, latest

    def merge(self, acc_a, acc_b):
        raise NotImplementedError


FUNCTIONS = {
    "reduce": lambda windowed: windowed.reduce(add_records),
    "reduce_process": lambda windowed: windowed.reduce(add_records, Results()),
    "aggregate": lambda windowed: windowed.aggregate(Records()),
    "aggregate_apply": lambda windowed: windowed.aggregate(SumAndCount(), AppliedResults()),
    "process": lambda windowed: windowed.process(Elements()),
    "process_sorted": lambda windowed: windowed.process(Elements(is_sorted=True)),
    "process_states": lambda windowed: windowed.process(Firings()),
    "apply": lambda windowed: windowed.apply(Applied()),
}


def windowed_by(stream, name, *sizes):
    if name == "count":
        return keyed(stream).count_window(*sizes)
    if name == "count_sliding":
        return keyed(stream).count_window(*sizes)
    assigners = {
        "tumbling": TumblingEventTimeWindows.of,
        "sliding": SlidingEventTimeWindows.of,
        "session": EventTimeSessionWindows.with_gap,
    }
    return keyed(stream).window(assigners[name](*(Time.milliseconds(size) for size in sizes)))


def trigger_of(name, purges, *arguments):
    if name == "event":
        trigger = EventTimeTrigger.create()
    elif name == "count":
        trigger = CountTrigger.of(*arguments)
    else:
        trigger = ContinuousEventTimeTrigger.of(Time.milliseconds(*arguments))
    return PurgingTrigger.of(trigger) if purges else trigger


def window_step(stream, number, assigner, function, lateness, has_late_output, trigger):
    windowed, outputs = windowed_by(stream, *assigner), {}
    if trigger is not None:
        windowed = windowed.trigger(trigger_of(*trigger))
    if lateness:
        windowed = windowed.allowed_lateness(lateness)
    tag = OutputTag(f"late-{number}", Types.PICKLED_BYTE_ARRAY())
    if has_late_output:
        windowed = windowed.side_output_late_data(tag)
    main = FUNCTIONS[function](windowed)
    if has_late_output:
        outputs[f"late-{number}"] = main.get_side_output(tag)
    return main, outputs


STEPS = {
    "map": map_step,
    "filter": filter_step,
    "flat_map": flat_map_step,
    "rekey": rekey_step,
    "stamp": stamp_step,
    "side": side_step,
    "state": state_step,
    "rolling": rolling_step,
    "timers": timers_step,
    "two": two_step,
    "window": window_step,
}
