"""Uploads of adapters: good ones, the hostile ones of somebody else, and what PEFT itself saves."""
