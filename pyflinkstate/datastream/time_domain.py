"""PyFlink's ``pyflink.datastream.time_domain``."""

from pyflinkstate.api import TimeDomain as TimeDomain
