"""State backends: where state lives, and how it becomes bytes. No Spark and no sockets in here."""
