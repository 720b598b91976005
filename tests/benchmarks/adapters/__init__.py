"""Adapters measured: from an upload to its first token, and from where they lie (`make
bench-adapters`). What `make bench` needs of them for its traffic is here too."""
