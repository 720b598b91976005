"""What a process may use of the system, and what it may leave behind."""

import resource


def raise_open_file_limit() -> int:
    """Raise this process' soft limit on open files, often 1,024, to the hard one, which is what the
    system really allows. Children inherit it. Return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def forbid_core_dumps() -> None:
    """Let a crash of this process or of its children leave no memory image: it would hold prompts,
    keys and secrets. None of them can take this back."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
