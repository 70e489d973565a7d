# Two images from one file: `api` has no torch, `worker` has.
#
#   docker build --target api -t grpolab-api .
#   docker build --target worker -t grpolab-worker .
#
# The worker gets the build of torch that the package index serves for Linux, which is the CUDA one on
# x86-64. For machines without a GPU give the address of PyTorch's CPU wheels (pytorch.org, "Start locally"):
#   docker build --target worker --build-arg TORCH_INDEX_URL=... -t grpolab-worker .

ARG PYTHON=3.11
# Debian with Python as `python` and `pip`; `make test-images` builds on one of its own.
ARG BASE=python:${PYTHON}-slim

FROM ${BASE} AS base
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# What is fetched from the Hugging Face hub stays: the rest of a container may be read-only, or gone tomorrow.
ENV HF_HOME=/state/cache/huggingface
RUN useradd --create-home --uid 10001 grpolab && install --directory --owner=grpolab --mode=0700 /state
WORKDIR /app
COPY requirements-service.lock ./
# The service's own dependencies: each file is one whose hash the lock knows.
RUN pip install --require-hashes --requirement requirements-service.lock

FROM base AS api
COPY backend backend
COPY frontend frontend
COPY migrations migrations
# The pages under /help, and their pictures.
COPY docs docs
# Its user cannot write here, and would compile all sources at every start.
RUN python -m compileall -q backend migrations
USER grpolab
EXPOSE 8400
CMD ["python", "-m", "backend.service", "serve"]

FROM base AS worker
ARG TORCH_INDEX_URL=""
COPY requirements.lock requirements-torch.lock requirements-nodeps.lock ./
RUN pip install --require-hashes --requirement requirements.lock \
 && pip install ${TORCH_INDEX_URL:+--extra-index-url ${TORCH_INDEX_URL}} --requirement requirements-torch.lock \
 && pip install --no-deps --require-hashes --requirement requirements-nodeps.lock
COPY backend backend
COPY worker worker
COPY migrations migrations
RUN python -m compileall -q backend worker migrations
USER grpolab
CMD ["python", "-m", "backend.service", "worker"]
