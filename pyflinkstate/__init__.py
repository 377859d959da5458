"""Apache Flink's keyed state API in Python, with PySpark underneath."""
