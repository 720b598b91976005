"""Charts: what one shows, as values, and the hues that things keep. A chart's table is its data."""
