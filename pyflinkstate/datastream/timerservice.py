"""PyFlink's ``pyflink.datastream.timerservice``."""

from pyflinkstate.api import TimerService as TimerService
