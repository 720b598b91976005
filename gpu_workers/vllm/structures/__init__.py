"""JSON schemas and grammars that answers have to follow: tried before the engine gets them."""
