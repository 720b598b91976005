"""The settings with invented values, for tools that connect to nothing: mypy, migration drift.

Never serve with these: the secrets are public.
"""

import os

_INVENTED = {
    "PENSTOCK_SECRET_KEY": "only-for-static-checks-not-a-secret-at-all-0123456789",
    "PENSTOCK_API_KEY_PEPPER": "only-for-static-checks-not-a-pepper-at-all",
    "PENSTOCK_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
    "PENSTOCK_DISPATCH_REDIS_URL": "redis://127.0.0.1:1/0",
    "PENSTOCK_REDIS_URL": "redis://127.0.0.1:1/1",
}
for _name, _value in _INVENTED.items():
    if f"{_name}_FILE" not in os.environ:
        os.environ.setdefault(_name, _value)

from control_plane.settings import *  # noqa: E402, F403

# No look at a database either: makemigrations would wait for the one that is not there.
DATABASES = {"default": {"ENGINE": "django.db.backends.dummy"}}
