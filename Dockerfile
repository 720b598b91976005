# Three images from one file: `web` (gateway, Django, Celery), `worker-cpu` and `worker-cuda`.
# Packages come from the hashed locks in requirements/, nothing else; no image runs as root.

FROM python:3.11-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app
RUN useradd --system --uid 10001 --home-dir /home/penstock --create-home penstock


FROM base AS web-packages
COPY requirements/web.txt requirements/web.txt
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-deps --require-hashes --only-binary :all: \
        -r requirements/web.txt

FROM base AS web
COPY --from=web-packages /opt/venv /opt/venv
COPY manage.py pyproject.toml ./
COPY platform platform
COPY tenants tenants
COPY inference inference
COPY gpu_workers gpu_workers
COPY templates templates
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app:/app/platform DJANGO_SETTINGS_MODULE=control_plane.settings
RUN printf '#!/bin/sh\nexec python -m command_line "$@"\n' > /opt/venv/bin/penstock \
    && chmod 755 /opt/venv/bin/penstock
# A volume that is mounted here takes over the owner.
RUN install -d -o penstock /var/lib/penstock/redis-users /var/lib/penstock/blobs
USER penstock
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "-c", \
    "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["python", "-m", "uvicorn", "control_plane.asgi:application", "--host", "0.0.0.0", \
    "--port", "8000", "--loop", "uvloop", "--http", "httptools", "--ws", "websockets-sansio", \
    "--ws-max-size", "1179648", "--ws-per-message-deflate", "false", "--lifespan", "on", \
    "--no-access-log", "--no-proxy-headers", "--timeout-keep-alive", "75", \
    "--header", "Keep-Alive:timeout=75", "--timeout-graceful-shutdown", "20"]


# The engine's packages, installed by the same code as `make up`, which also knows where the CPU
# build of torch is found. `--build-arg PENSTOCK_TORCH_CPU_INDEX=...` names another index for it.
FROM base AS engine-packages
COPY requirements requirements
COPY platform/local_stack platform/local_stack
# Compiled once here: the image itself is never written to.
ENV UV_COMPILE_BYTECODE=1

FROM engine-packages AS engine-cpu-packages
RUN apt-get update && apt-get install -y --no-install-recommends libnuma1 \
    && rm -rf /var/lib/apt/lists/*
ARG PENSTOCK_TORCH_CPU_INDEX
RUN PENSTOCK_ENGINE=cpu PYTHONPATH=platform \
    python -m local_stack.bootstrap --engine-only --root /app

FROM engine-packages AS engine-cuda-packages
RUN PENSTOCK_ENGINE=cuda PYTHONPATH=platform \
    python -m local_stack.bootstrap --engine-only --root /app

FROM base AS worker
COPY gpu_workers gpu_workers
ENV PATH=/app/.venv-engine/bin:$PATH PYTHONPATH=/app HF_HOME=/home/penstock/models
USER penstock
RUN mkdir -p /home/penstock/models /home/penstock/outbox /home/penstock/compile-cache \
    /home/penstock/adapter-cache
EXPOSE 9101
ENV PENSTOCK_WORKER_METRICS_HOST=0.0.0.0 PENSTOCK_WORKER_METRICS_PORT=9101
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s CMD ["python", "-c", \
    "import urllib.request as u; u.urlopen('http://127.0.0.1:9101/metrics', timeout=4)"]
CMD ["python", "-m", "gpu_workers"]

FROM worker AS worker-cpu
USER root
RUN apt-get update && apt-get install -y --no-install-recommends libnuma1 \
    && rm -rf /var/lib/apt/lists/*
USER penstock
COPY --from=engine-cpu-packages /app/.venv-engine /app/.venv-engine

FROM worker AS worker-cuda
USER root
# Triton compiles its kernels on the machine that runs them.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
USER penstock
COPY --from=engine-cuda-packages /app/.venv-engine /app/.venv-engine
