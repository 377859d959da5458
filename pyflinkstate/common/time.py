"""PyFlink's ``pyflink.common.time``."""

from pyflinkstate.api import Duration as Duration, Instant as Instant, Time as Time
