"""What requests notice of operators' pages that are open and keep themselves current."""
