"""Time to live, as a decorator around any backend's state; the backend itself knows nothing of it."""
