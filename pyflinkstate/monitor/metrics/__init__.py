"""What a job measures, in the forms of those who collect metrics."""
