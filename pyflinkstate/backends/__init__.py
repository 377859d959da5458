"""State backends: where state lives, and how it becomes bytes. Nothing here uses Spark or sockets."""
