"""All that somebody should look at, since when, and what to do about it."""
