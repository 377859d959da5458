"""A Spark context as PySpark's RDDs see it, which asks the JVM only once for what does not change.

PySpark looks a class of the JVM up whenever it uses it, then the method, and copies the workers' environment
into a new Java map for each function, with a call for each entry. For RDDs that are built once that is
nothing; a job builds them for each epoch, and waits for every one of these calls. So the RDDs of epochs hold
this view in place of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from py4j.java_collections import ListConverter, MapConverter
from py4j.java_gateway import JavaClass, JavaMember
from pyspark import SparkContext

from pyflinkstate.api.values import SparkObject

#: Something that PySpark would convert for each call.
C = TypeVar("C")


class ContextView:
    """What RDDs use of ``context``; all that is not here is asked of the context itself.

    ``variables`` are added to the environment of Python workers, so these RDDs have workers of their own.
    """

    def __init__(self, context: SparkContext, variables: Mapping[str, str] | None = None) -> None:
        self._context = context
        self._variables = dict(variables or {})
        client = context._gateway._gateway_client  # type: ignore[union-attr]
        self._jvm = _KnownClasses(context._jvm)
        #: Text that Spark shows instead of the line of code that makes the next stage; None shows the line.
        self.stage_name: str | None = None
        self._jsc = _NamedStages(context._jsc, self)
        self._conf = _KnownSettings(context)
        self._environment = _Converted[dict[str, str]](lambda env: MapConverter().convert(env, client))
        self._includes = _Converted[list[str]](lambda names: ListConverter().convert(names, client))

    def __getattr__(self, name: str) -> SparkObject:
        return getattr(self._context, name)

    @property
    def environment(self) -> SparkObject:
        """The environment of Python workers, as a Java map."""
        return self._environment.of({**self._context.environment, **self._variables})

    @property
    def _python_includes(self) -> SparkObject:
        """The names of the files on the workers' path, as a Java list; a program may add some at any time."""
        return self._includes.of(list(self._context._python_includes or ()))


class _NamedStages:
    """The context in the JVM: PySpark tells it the line that makes a stage, and Spark names the stage so."""

    def __init__(self, context: SparkObject, view: ContextView) -> None:
        self._context = context
        self._view = view

    def setCallSite(self, line: str | None) -> None:
        """Tell the name of the stage, where there is one; None forgets what was told."""
        self._context.setCallSite(line if line is None else self._view.stage_name or line)

    def __getattr__(self, name: str) -> SparkObject:
        return getattr(self._context, name)


class _Converted(Generic[C]):
    """The Java object for a Python object, made again only when that has changed. The JVM only reads it."""

    def __init__(self, convert: Callable[[C], SparkObject]) -> None:
        self._convert = convert
        self._python: C | None = None
        self._java: SparkObject = None

    def of(self, python: C) -> SparkObject:
        if self._python is None or self._python != python:
            self._java = self._convert(python)
            self._python = python
        return self._java


class _KnownSettings:
    """The settings of a context, which are fixed when it starts."""

    def __init__(self, context: SparkContext) -> None:
        self._settings = dict(context._conf.getAll())

    def get(self, key: str, default: Any = None) -> Any:
        return self._settings.get(key, default)


class _KnownClasses:
    """The classes of the JVM, each looked up once."""

    def __init__(self, jvm: SparkObject) -> None:
        self._jvm = jvm

    def __getattr__(self, name: str) -> SparkObject:
        found = getattr(self._jvm, name)
        if isinstance(found, JavaClass):
            found = _KnownClass(found)
            setattr(self, name, found)
        return found


class _KnownClass:
    """A class of the JVM, whose static methods are looked up once."""

    def __init__(self, java_class: SparkObject) -> None:
        self._java_class = java_class

    def __call__(self, *arguments: Any) -> SparkObject:
        return self._java_class(*arguments)

    def __getattr__(self, name: str) -> SparkObject:
        found = getattr(self._java_class, name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found
