"""The usage explorer: what was used and what it cost, by whatever reports can group by."""
