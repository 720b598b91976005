"""`make up`: Penstock's own PostgreSQL, Redis, web process, Celery and workers on one machine.

`bootstrap` makes the environments, `services` knows how a PostgreSQL or Redis server is started
(tests use it too), `stack` brings all of it up and down under supervisord.
"""
