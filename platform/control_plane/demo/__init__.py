"""The demo of `make up`: tenants, people, and what they used before its first day."""
