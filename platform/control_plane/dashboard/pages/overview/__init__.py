"""The overview: first steps of a new organisation, then what is open, spent, promised and amiss."""
