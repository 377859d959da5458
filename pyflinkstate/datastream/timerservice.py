"""PyFlink's ``pyflink.datastream.timerservice``."""

from pyflinkstate.api.context import TimerService as TimerService
