"""The Nexmark benchmark: events of an auction site, queries over them, and what the queries must give.

* ``events``, ``generator``, ``source``: the three kinds of events, and where they come from.
* ``views``: the tables that the queries read.
* ``joins``, ``winning_bids``, ``windows``, ``reports``, ``ranking``: the queries, by what they need.
* ``oracles``: the same results in plain Python, from the SQL text of each query.
* ``queries``: the table of queries.
* ``sinks``: what the results are sent to.
"""
