"""The benchmarks' results: recorded as JSON, and drawn as tables and plots.

* ``programs``: which benchmarks are recorded, what is asked of their figures, and what each figure means.
* ``conditions``: the machine, the versions and the commit that figures belong to.
* ``results``: the runs of a benchmark, what they come to, and their file.
* ``numbers``: how figures are printed.
* ``pictures``: bar charts as SVG.
* ``charts``: which charts there are.
* ``tables``: the tables of the documents.

``record.py`` and ``draw.py`` beside this package are its programs.
"""
