# One image for every program; the command chooses: python -m api (the default) or python -m workers.
#   docker build -t hearline . && docker run --rm --read-only --tmpfs /tmp hearline python -m workers --check

FROM python:3.12-slim AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/hearline
# The locked packages come first: they change less often than the code.
COPY requirements.lock ./
RUN /opt/hearline/bin/python -m pip install --quiet --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY queueing queueing
COPY sessions sessions
COPY api api
COPY workers workers
COPY ops ops
COPY loadgen loadgen
RUN /opt/hearline/bin/python -m pip install --quiet --no-deps --no-build-isolation .

FROM python:3.12-slim
COPY --from=build /opt/hearline /opt/hearline
# Numeric, so that an orchestrator can see that it is not root; it owns nothing in the image.
USER 10001:10001
WORKDIR /tmp
ENV PATH=/opt/hearline/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONSAFEPATH=1 \
    HOME=/tmp HEARLINE_HOST=0.0.0.0
EXPOSE 8000
STOPSIGNAL SIGTERM
# Of the web process; a worker's container says `healthcheck: disable` (its heartbeat shows in `hearline queue`).
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["python", "-c", "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ.get('HEARLINE_PORT', 8000)), timeout=2); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
CMD ["python", "-m", "api"]
