"""Errands as people do them in a browser and a terminal, counted in clicks, fields and seconds."""
