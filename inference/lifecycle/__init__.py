"""One request from admission to its terminal record: the use case that doors call, and the end of
every request, whether its client, its worker or Redis itself is still there."""
