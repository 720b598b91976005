"""`make audit`: known vulnerabilities, a bill of materials and licences of all that others wrote.
It reads the lock files, and `reviewed.toml` for what people have decided."""
