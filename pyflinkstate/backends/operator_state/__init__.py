"""Operator state: lists and maps of a subtask, not of a key, and how they are spread on a restore."""
