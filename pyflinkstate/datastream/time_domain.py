"""PyFlink's ``pyflink.datastream.time_domain``."""

from pyflinkstate.api.context import TimeDomain as TimeDomain
