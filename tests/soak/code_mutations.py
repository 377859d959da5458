"""Draws changes of code by a seed: small faults such as people make, from the syntax tree of a file.

A change is one of text, so the rest of the file stays as it is. Left alone is what can make no difference to
what the package does: docstrings, annotations, messages of errors and logs, ``__repr__``, assertions.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise, zip_longest
from pathlib import Path
from typing import Any

import attrs

#: What stands in a line so that coverage leaves it out.
PRAGMA = "# pragma"
#: Larger numbers are bounds and factors: one more or less of those is no fault.
LARGEST_CONSTANT = 16
COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
#: Of these the order does not matter, or a wrong one fails at once.
ANY_ORDER = {"isinstance", "issubclass", "hasattr", "getattr", "max", "min", "suppress"}
#: Parts of a definition that say something about it.
NOTES = {"annotation", "returns", "decorator_list"}
#: Functions and an object for people, or for tests.
ASIDE = {"__repr__", "__str__", "_check", "_log"}


@attrs.frozen
class CodeMutation:
    """One change: the characters of ``file`` from ``start`` to ``end`` become ``new``.

    ``before`` and ``after`` are the lines that it changes, for people.
    """

    file: str
    line: int
    kind: str
    start: int
    end: int
    new: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.before} -> {self.after}"

    def overlaps(self, other: CodeMutation) -> bool:
        """Return whether both cannot be put into one copy."""
        return self.file == other.file and self.start < other.end and other.start < self.end


def apply(text: str, mutations: list[CodeMutation]) -> str:
    """Return the text of a file with all of its ``mutations``, which do not overlap."""
    for mutation in sorted(mutations, key=lambda mutation: -mutation.start):
        text = text[: mutation.start] + mutation.new + text[mutation.end :]
    return text


def place_of(mutation: CodeMutation, text: str) -> tuple[int, str] | None:
    """Return where a statement fits in that runs when the mutated one does, and the indent there.

    None: what is mutated is no statement of a function, so every test that imports the file meets it.
    """
    finder = _Finder(mutation.file, text)
    function = _innermost(finder, mutation, (ast.FunctionDef,), ast.walk(ast.parse(text)))
    if function is None or finder.start_of(function.body[0]) > mutation.start:
        return None
    inside = (node for statement in function.body for node in ast.walk(statement))
    statement = _innermost(finder, mutation, (ast.stmt,), inside)
    start = finder.start_of(statement)
    indent = text[text.rfind("\n", 0, start) + 1 : start]
    return (start, indent)


def _innermost(
    finder: _Finder, mutation: CodeMutation, kinds: tuple[type, ...], nodes: Iterable[ast.AST]
) -> Any:
    """Return the last to begin of the nodes that hold a mutation;."""
    holding = [node for node in nodes if isinstance(node, kinds) and finder.holds(node, mutation)]
    return max(holding, key=finder.start_of, default=None)


def drawn(package: Path, files: list[str], seed: int, count: int) -> list[CodeMutation]:
    """Return ``count`` mutations, as many of each file as of the others as long as it has any left."""
    series = [
        _in_random_order(mutations_of(file, (package / file).read_text()), random.Random(f"{seed} {file}"))
        for file in files
    ]
    in_turn = chain.from_iterable(zip_longest(*series))
    return list(islice((mutation for mutation in in_turn if mutation is not None), count))


def _in_random_order(mutations: list[CodeMutation], rng: random.Random) -> Iterator[CodeMutation]:
    """Yield mutations, at most one of a line; each kind is as likely as the others, rare or not."""
    lines: set[int] = set()
    while left := [mutation for mutation in mutations if mutation.line not in lines]:
        kind = rng.choice(sorted({mutation.kind for mutation in left}))
        mutation = rng.choice([mutation for mutation in left if mutation.kind == kind])
        lines.add(mutation.line)
        yield mutation


def mutations_of(file: str, text: str) -> list[CodeMutation]:
    """Return every mutation of a file's text, in the order of the syntax tree."""
    return list(_Finder(file, text).found())


class _Finder:
    """Finds the mutations of one file."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def found(self) -> Iterator[CodeMutation]:
        for node in _nodes_that_matter(ast.parse(self._text)):
            for find in _FINDERS.get(type(node), ()):
                for found in find(self, node):
                    mutation = self._mutation(*found)
                    if PRAGMA not in self._lines[mutation.line - 1]:
                        yield mutation

    def _mutation(self, kind: str, start: int, end: int, new: str) -> CodeMutation:
        before, after = self._text.rfind("\n", 0, start) + 1, self._text.find("\n", end)
        return CodeMutation(
            self._file,
            self._text.count("\n", 0, start) + 1,
            kind,
            start,
            end,
            new,
            _on_one_line(self._text[before:after]),
            _on_one_line(self._text[before:start] + new + self._text[end:after]),
        )

    def _at(self, line: int, byte: int) -> int:
        """Return the offset of what the syntax tree says in lines and bytes."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:byte].decode())

    def start_of(self, node: Any) -> int:
        """Return where a node begins."""
        return self._span(node)[0]

    def holds(self, node: ast.AST, mutation: CodeMutation) -> bool:
        """Return whether a mutation lies in a statement that begins a line, and not with ``elif``."""
        start, end = self._span(node)
        begins_line = not self._text[self._text.rfind("\n", 0, start) + 1 : start].strip()
        is_elif = self._text.startswith("elif", start)
        return start <= mutation.start < end and begins_line and not is_elif

    def _span(self, node: Any) -> tuple[int, int]:
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> tuple[int, int, str]:
        """Return where the text between two expressions is, and that text with another operator."""
        start, end = self._span(left)[1], self._span(right)[0]
        text = self._text[start:end]
        return start, end, text.replace(old, new, 1)

    def comparisons(self, node: ast.Compare) -> Iterator[Found]:
        for operator, (left, right) in zip(node.ops, pairwise([node.left, *node.comparators]), strict=True):
            yield "comparison", *self._between(left, right, *COMPARISONS[type(operator)])

    def constants(self, node: ast.Constant) -> Iterator[Found]:
        if type(node.value) is int and node.value <= LARGEST_CONSTANT:
            for value in (node.value + 1, node.value - 1):
                yield "constant", *self._span(node), str(value)

    def junctions(self, node: ast.BoolOp) -> Iterator[Found]:
        """All of one row of conditions become the other one."""
        start, end = self._span(node)
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        text = ""
        at = start
        for left, right in pairwise(node.values):
            begin, after, new = self._between(left, right, *words)
            text, at = text + self._text[at:begin] + new, after
        yield "and/or", start, end, f"({text}{self._text[at:end]})"

    def conditions(self, node: ast.If | ast.While | ast.IfExp) -> Iterator[Found]:
        start, end = self._span(node.test)
        yield "negation", start, end, f"not ({self._text[start:end]})"

    def filters(self, node: ast.comprehension) -> Iterator[Found]:
        for test in node.ifs:
            start, end = self._span(test)
            yield "negation", start, end, f"not ({self._text[start:end]})"

    def bodies(self, node: ast.If) -> Iterator[Found]:
        yield "body removed", self._span(node.body[0])[0], self._span(node.body[-1])[1], "pass"

    def statements(self, node: ast.stmt) -> Iterator[Found]:
        if _does_something(node):
            yield "statement dropped", *self._span(node), "pass"

    def returns(self, node: ast.Return) -> Iterator[Found]:
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
            return
        start, end = self._span(node.value)
        is_condition = isinstance(node.value, (ast.Compare, ast.BoolOp)) or _is_bool(node.value)
        yield "return", start, end, f"not ({self._text[start:end]})" if is_condition else "None"

    def swaps(self, node: ast.Call) -> Iterator[Found]:
        if _name_of(node.func) in ANY_ORDER or any(
            isinstance(value, (ast.Starred, ast.Yield)) for value in node.args
        ):
            return
        for one, other in pairwise(node.args):
            (start, middle), (after, end) = self._span(one), self._span(other)
            first, second = self._text[start:middle], self._text[after:end]
            if first != second:
                yield "swap", start, end, second + self._text[middle:after] + first


#: Kind, start, end, new text.
Found = tuple[str, int, int, str]
_FINDERS: dict[type[ast.AST], list[Callable[[_Finder, Any], Iterator[Found]]]] = {
    ast.Compare: [_Finder.comparisons],
    ast.Constant: [_Finder.constants],
    ast.BoolOp: [_Finder.junctions],
    ast.If: [_Finder.conditions, _Finder.bodies],
    ast.While: [_Finder.conditions],
    ast.IfExp: [_Finder.conditions],
    ast.comprehension: [_Finder.filters],
    ast.Return: [_Finder.returns],
    ast.Call: [_Finder.swaps],
    **{kind: [_Finder.statements] for kind in (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Raise)},
}


def _nodes_that_matter(node: ast.AST) -> Iterator[ast.AST]:
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in NOTES and not _is_unheard(child):
                yield child
                if not isinstance(child, ast.Raise):
                    yield from _nodes_that_matter(child)


def _is_unheard(node: ast.AST) -> bool:
    """Return whether nothing below ``node`` makes a difference to what the package does."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_unheard(node.value)
    if isinstance(node, ast.Call):
        return _is_text(node.func)
    if isinstance(node, ast.FunctionDef):
        return node.name in ASIDE or (node.returns is not None and _is_text(node.returns))
    if isinstance(node, ast.If):
        return _name_of(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.Raise):
        return node.exc is not None and _name_of(node.exc) == "NotImplementedError"
    return isinstance(node, (ast.Assert, ast.JoinedStr))


def _is_text(function: ast.expr) -> bool:
    """Return whether what ``function`` gets, or is, is read by people alone."""
    owner = _name_of(function.value) if isinstance(function, ast.Attribute) else ""
    name = _name_of(function)
    return owner in ASIDE or name.endswith(("Error", "Warning")) or name == "refusal"


def _name_of(node: ast.expr) -> str:
    return getattr(node, "id", "") or getattr(node, "attr", "")


def _does_something(node: ast.stmt) -> bool:
    """Return whether the statement can be left out, and the file still makes sense."""
    if isinstance(node, ast.Assign):
        return not any(isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets)
    return not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call)


def _is_bool(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _on_one_line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 100 else f"{words[:97]}..."
