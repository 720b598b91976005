"""How Django answers: in which thread, with which files, and what it refuses before a view runs."""
