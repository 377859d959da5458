"""The programs that `benchmarks/latency.py` runs, one per engine, each in an environment of its own.

A program imports its engine, the standard library, :mod:`pace` and :mod:`owned`. It runs until the arrivals
of all measured records are logged.
"""
