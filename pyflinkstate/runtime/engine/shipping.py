"""Sends user code to Spark tasks: it is pickled once per job and sent once to each executor.

Otherwise Spark would pickle every function again for each epoch and send it with each task, and a function
that holds a large table would cost as much as its records.
"""

from __future__ import annotations

import hashlib

from pyflinkstate.api.values import SparkObject, UserFunction
from pyflinkstate.runtime.plan import JobPlan, functions_of
from pyflinkstate.runtime.wire import ShippedFunction, pickled


class CodeBook:
    """The pickled functions of a plan that run inside Spark tasks.

    Raises:
        ConfigurationError: one of them cannot be pickled.
    """

    def __init__(self, plan: JobPlan) -> None:
        #: The pickles by digest.
        self.codes: dict[str, bytes] = {}
        #: Functions and the digests of their pickles, by the ids of the functions.
        self._functions: dict[int, tuple[UserFunction, str]] = {}
        for name, function in functions_of(plan):
            data = pickled(name, function)
            digest = hashlib.sha256(data).hexdigest()
            self.codes[digest] = data
            self._functions[id(function)] = function, digest

    def shipped(self, function: UserFunction, codes: SparkObject) -> UserFunction:
        """Return the object to send in place of ``function``: itself, if it is not part of the plan."""
        _, digest = self._functions.get(id(function), (None, None))
        return function if digest is None else ShippedFunction(digest, codes)
