"""A tenant's pages, a file for each section of the rail: its forms, what it shows, and the verbs
that it calls."""
