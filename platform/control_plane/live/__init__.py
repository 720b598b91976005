"""Panels of live pages: what was read for each last, one reading a second for all who look."""
