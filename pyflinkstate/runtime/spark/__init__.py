"""All that is said to PySpark: sessions, RDDs, epochs as Spark jobs. No other room imports pyspark."""
