"""A fuzzer over what clients may legally ask for, and three streams that must not notice."""
