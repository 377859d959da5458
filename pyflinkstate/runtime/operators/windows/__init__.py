"""Windows on keyed streams: the operator, merging windows, contents and contexts."""
