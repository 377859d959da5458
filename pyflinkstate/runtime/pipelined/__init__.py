"""The pipelined engine: tasks that stay for a whole attempt and send their records straight to the slots."""
