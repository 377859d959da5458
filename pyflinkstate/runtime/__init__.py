"""The runtime: runs operators on Spark, takes checkpoints, restores."""
