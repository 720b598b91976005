"""Greedy answers of the demo model and its adapters, by us and by others: the same questions, and
where the answers part."""
