"""The windows of keyed streams: their operator, merging windows, contents and contexts."""
