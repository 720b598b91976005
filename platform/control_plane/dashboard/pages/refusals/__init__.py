"""Why requests were refused: the page, its words, its file."""
