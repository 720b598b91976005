"""Pages for people: a tenant's own affairs below /t/<tenant id>/, and the components
they are made of.

A page parses, calls the verbs that the API calls, and renders; it holds no rule of its own.
"""
