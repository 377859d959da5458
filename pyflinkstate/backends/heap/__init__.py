"""The heap backend: keyed state in copy-on-write maps, snapshots without stopping."""
