"""User code on its way to Spark tasks: pickled once for a job, sent once to an executor.

Without this Spark would pickle every function anew for each epoch and send it with each task; a function
that holds a large table would cost as much as its records.
"""

from __future__ import annotations

import hashlib

from pyflinkstate.api.values import SparkObject, UserFunction
from pyflinkstate.runtime.plan import JobPlan, functions_of
from pyflinkstate.runtime.wire import ShippedFunction, pickled


class CodeBook:
    """The functions of a plan that run inside Spark tasks, pickled.

    Raises:
        ConfigurationError: one of them cannot be pickled.
    """

    def __init__(self, plan: JobPlan) -> None:
        #: Pickles by digest.
        self.codes: dict[str, bytes] = {}
        self._functions: list[tuple[UserFunction, str]] = []
        for name, function in functions_of(plan):
            data = pickled(name, function)
            digest = hashlib.sha256(data).hexdigest()
            self.codes[digest] = data
            self._functions.append((function, digest))

    def shipped(self, function: UserFunction, codes: SparkObject) -> UserFunction:
        """Return what to send in the place of ``function``; itself, if it is none of the plan's."""
        for known, digest in self._functions:
            if known is function:
                return ShippedFunction(digest, codes)
        return function
