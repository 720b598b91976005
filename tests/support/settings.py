"""The product's settings, without what costs tests time and tells them nothing.

Processes that a test starts inherit them; a live stack has the product's own.
"""

from control_plane.settings import *  # noqa: F403

# The product's hash takes a third of a second, on purpose.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Each client of Django's tests makes the middleware anew, which would index all static files.
WHITENOISE_AUTOREFRESH = True
