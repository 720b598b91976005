"""A small world of which every figure is known, and how figures are read from pages."""
