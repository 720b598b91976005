"""A pool in cells, before it is built: `make bench-cells` simulates it in virtual time."""
