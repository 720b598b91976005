"""The organisation itself: its audit log, its settings, its export and its end."""
