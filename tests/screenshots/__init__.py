"""`make screenshots`: every page as a picture, light and dark, on desks, tablets and phones."""
