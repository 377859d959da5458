"""The programs that `benchmarks/peers.py` runs, one an engine, each in an environment of its own.

A program imports its engine, the standard library and :mod:`workload`, and nothing else. It is called with
the name of a workload and a number of records, and its last line of output is a :class:`workload.Outcome` as
JSON.
"""
