"""A worker of Penstock over the replayed engine; takes a worker's settings."""

import sys

from gpu_workers import __main__ as worker

if __name__ == "__main__":
    import os

    from gpu_workers.config import WorkerConfig
    from gpu_workers.vllm.arguments import set_environment

    # As VllmEngine does it, but before vLLM is imported here.
    set_environment(WorkerConfig.from_environ(os.environ), os.environ)
    from tests.benchmarks.front.seam import replace_engine_core

    replace_engine_core()
    sys.exit(worker.main())
