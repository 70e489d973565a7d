# Two images from one file: `api` has no torch, `worker` has.
#
#   docker build --target api -t grpolab-api .
#   docker build --target worker -t grpolab-worker .
#
# The worker gets the build of torch that the package index serves for Linux, which is the CUDA one on
# x86-64. For machines without a GPU give the address of PyTorch's CPU wheels (pytorch.org, "Start locally"):
#   docker build --target worker --build-arg TORCH_INDEX_URL=... -t grpolab-worker .

ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home --uid 10001 grpolab && install --directory --owner=grpolab --mode=0700 /state
WORKDIR /app
COPY pyproject.toml requirements.lock requirements-nodeps.lock ./
# The service's own dependencies, at the versions of the lock.
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > /tmp/service.txt \
 && pip install --constraint requirements.lock --requirement /tmp/service.txt

FROM base AS api
COPY backend backend
COPY frontend frontend
COPY migrations migrations
USER grpolab
EXPOSE 8400
CMD ["python", "-m", "backend.cli", "serve"]

FROM base AS worker
ARG TORCH_INDEX_URL=""
RUN pip install ${TORCH_INDEX_URL:+--extra-index-url ${TORCH_INDEX_URL}} --requirement requirements.lock \
 && pip install --no-deps --requirement requirements-nodeps.lock
COPY backend backend
COPY worker worker
COPY migrations migrations
USER grpolab
CMD ["python", "-m", "backend.cli", "worker"]
