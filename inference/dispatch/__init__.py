"""The queues of the pools and the workers that serve them: the Lua library that decides who runs
next and where, its Python face, and the registry of workers."""
