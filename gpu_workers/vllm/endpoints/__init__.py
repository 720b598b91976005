"""One endpoint of the API, one file: how its requests are parsed, served, counted and rendered."""
