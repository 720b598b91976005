"""What usage should cost by the price book, and what makes up for what it did cost."""
