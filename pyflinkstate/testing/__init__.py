"""What tests of operators need. Not public yet: names may change."""
