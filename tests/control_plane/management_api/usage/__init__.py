"""What reports and lists of usage answer, and to whom."""
