"""What is drawn fits the package; each kind of mutation is found where it is one, and nowhere else."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soak_code_mutations
from code_mutations import apply, drawn, mutations_of, place_of

PACKAGE = soak_code_mutations.ROOT / "pyflinkstate"


def changes(text):
    """Return kind and changed lines of each mutation of a text."""
    return [(mutation.kind, mutation.after) for mutation in mutations_of("example.py", f"{text}\n")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b", [("comparison", "x = a <= b")]),
        ("x = a < b is not c", [("comparison", "x = a <= b is not c"), ("comparison", "x = a < b is c")]),
        ("x = y[1]", [("constant", "x = y[2]"), ("constant", "x = y[0]")]),
        ("x = a and b and c", [("and/or", "x = (a or b or c)")]),
        ("x = a if b else c", [("negation", "x = a if not (b) else c")]),
        ("x = [a for a in b if a]", [("negation", "x = [a for a in b if not (a)]")]),
        ("if a:\n    x = 'é'", [("negation", "if not (a):"), ("body removed", "pass")]),
        ("def f():\n    return a", [("return", "return None")]),
        ("def f():\n    return True", [("return", "return not (True)")]),
        ("f(a)", [("statement dropped", "pass")]),
        ("a.b += c", [("statement dropped", "pass")]),
        ("x = 'é', f(a, b)", [("swap", "x = 'é', f(b, a)")]),
    ],
)
def test_each_kind_of_mutation(text, expected):
    assert changes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        '"""A text."""',
        "x: 'a[1]' = y",
        "def f(a: 'b < c' = d) -> 'b[1]':\n    'A text.'",
        "_log.info('%d', a + 1)",
        "x = SomeError(f'{a + 1}', a < b)",
        "def f() -> SomeError:\n    return SomeError(1)",
        "def __repr__(self):\n    return 'x'",
        "def f():\n    raise NotImplementedError",
        "assert a < b",
        "x = f'{a + 1}'",
        "x = 1 < 2  # pragma: no cover",
        "x = 10_000",
        "x = isinstance(a, b)",
    ],
)
def test_what_can_make_no_difference_is_left_alone(text):
    assert changes(text) == []


def test_an_error_may_not_be_raised_but_its_text_stays():
    assert changes("if a:\n    raise SomeError(b, 1)") == [
        ("negation", "if not (a):"),
        ("body removed", "pass"),
        ("statement dropped", "pass"),
    ]


@pytest.mark.full
def test_what_is_drawn_is_code_and_differs():
    for mutation in drawn(PACKAGE, soak_code_mutations.FILES, 12, 40):
        text = (PACKAGE / mutation.file).read_text()
        assert ast.dump(ast.parse(apply(text, [mutation]))) != ast.dump(ast.parse(text)), mutation


def test_a_seed_draws_the_same_again_evenly_from_all_files():
    count = 3 * len(soak_code_mutations.FILES)
    once, again, other = (
        [str(mutation) for mutation in drawn(PACKAGE, soak_code_mutations.FILES, seed, count)]
        for seed in (1, 1, 2)
    )
    assert once == again != other
    assert [line.split(":")[0] for line in once] == soak_code_mutations.FILES * 3


def test_no_line_is_changed_twice():
    found = drawn(PACKAGE, ["backends/ttl/rules.py"], 1, 1000)
    assert len({mutation.line for mutation in found}) == len(found) > 10


def test_several_are_put_into_one_text():
    text = "x = a < b\ny = a == b\n"
    assert apply(text, mutations_of("example.py", text)) == "x = a <= b\ny = a != b\n"


def test_one_inside_another_overlaps_it():
    negation, body, swap = mutations_of("example.py", "if a:\n    x = f(b, c)\n")
    assert body.overlaps(swap)
    assert swap.overlaps(body)
    assert not negation.overlaps(body)


@pytest.mark.parametrize(
    ("after", "place"),
    [
        ("def f(a, b=3):", None),
        ("if not (a):", "    |if a:"),
        ("x = 3", "        |x = 2"),
        ("elif b <= a:", "    |if a:"),
    ],
)
def test_what_notes_a_mutation_stands_before_its_statement(after, place):
    text = "def f(a, b=2):\n    if a:\n        x = 2\n    elif b < a:\n        y()\n"
    mutation = next(mutation for mutation in mutations_of("example.py", text) if mutation.after == after)
    found = place_of(mutation, text)
    assert (None if found is None else f"{found[1]}|{text[found[0] :].splitlines()[0]}") == place


#: A process that the first test starts, as the first one on Spark starts the JVM, serves both.
TESTS_WITH_ONE_PROCESS = """
import subprocess, sys
import pytest

@pytest.fixture(scope="session")
def ask():
    program = "import reached, sys; [print(reached.note(int(line)), flush=True) for line in sys.stdin]"
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
        yield lambda number: (process.stdin.write(f"{number}\\n"), process.stdout.readline())

def test_one(ask):
    ask(1)

def test_two(ask):
    ask(1), ask(2)
"""


@pytest.mark.full
def test_a_process_that_an_earlier_test_started_notes_the_test_that_runs(tmp_path):
    shutil.copy(Path(soak_code_mutations.__file__).with_name("reached.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS_WITH_ONE_PROCESS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "reached", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    seconds, reached = soak_code_mutations.read_notes(tmp_path / "reached.jsonl")
    one, two = "test_it.py::test_one", "test_it.py::test_two"
    assert sorted(seconds) == [one, two]
    assert reached == {(1, one), (1, two), (2, two)}
