"""Redis servers of the tests: what they hold, how they fail, and those that watch them."""
