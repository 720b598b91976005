"""vLLM's own OpenAI server over the replayed engine; takes that server's arguments."""

from tests.benchmarks.front.seam import replace_engine_core

if __name__ == "__main__":
    from vllm.entrypoints.launchers.api_server.entry import main

    replace_engine_core()
    main()
