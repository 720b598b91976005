"""How records are read, for API and pages alike: what lists and reports can be asked for, how a row
is told, and how many of them become a file."""
