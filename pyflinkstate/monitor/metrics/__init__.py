"""The metrics of jobs, in the formats of metric collectors."""
