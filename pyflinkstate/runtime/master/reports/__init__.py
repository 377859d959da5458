"""What a job tells about itself: to listeners and observers, in the log, on a terminal, as its result."""
