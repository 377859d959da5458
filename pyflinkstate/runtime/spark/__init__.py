"""Everything that uses PySpark: sessions, RDDs, epochs as Spark jobs. No other room imports pyspark."""
