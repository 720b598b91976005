"""Pages, lists, reports and searches at ten million records."""
