"""Commands, and what all of them share."""

from typing import Final

# The status of a command that found nobody to ask. Of the command line too, which starts no Django.
UNREACHABLE: Final = 3
