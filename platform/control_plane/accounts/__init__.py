"""Accounts as pages: django-allauth's, with our sign-in, our limits and our audit log around them.
The user's email address is the login, and the only one: allauth's table of addresses is empty."""
