"""A parent with a child and a grandchild, as a worker is with vLLM's. Prints their pids."""

import multiprocessing
import sys
import time

from gpu_workers.process_tree import adopt_children


def child(depth: int) -> None:
    process = None
    if depth:
        process = multiprocessing.get_context("spawn").Process(target=child, args=(depth - 1,))
        process.start()
        sys.stdout.write(f"{process.pid}\n")
        sys.stdout.flush()
    time.sleep(600)


if __name__ == "__main__":
    adopt_children()
    # Under its own name: children import another module in the place of this `__main__`.
    from tests.support.processes import tree_parent

    tree_parent.child(2)
