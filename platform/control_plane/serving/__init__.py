"""How Django answers: in which thread, with which files."""
