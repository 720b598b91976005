"""One API, one file: how its requests are parsed, served, counted and rendered. `endpoint` is what
serving asks of each, `registry` says which there are."""
