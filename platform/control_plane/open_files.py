"""Raises the limit on open files, since each connection is one."""

import resource


def raise_open_file_limit() -> int:
    """Raise this process' soft limit on open files, often 1,024, to the hard one, which is what the
    system really allows. Children inherit it. Return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
