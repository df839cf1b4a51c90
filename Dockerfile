# docker build -t shortlist:3.0.0 .        (arm64: --build-arg MARCH=armv8-a)
FROM python:3.12-slim AS build
# The graph library would otherwise be compiled for the machine that builds, and may not run on another one.
ARG MARCH=x86-64-v3
ENV HNSWLIB_NO_NATIVE=1 CFLAGS=-march=$MARCH
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY algorithms algorithms
COPY clients/python clients/python
COPY clients/files clients/files
COPY plugins plugins
COPY app app
COPY server server
COPY shortlist_service shortlist_service
COPY workers workers
# The service stands before its plug-ins: they ask for it, and pip would look for it in a registry.
RUN python -m venv /opt/shortlist && /opt/shortlist/bin/pip install --no-cache-dir -c constraints.txt ./algorithms ./clients/python ./clients/files '.[kafka,lake,mcp,milvus,otel,parquet,personalizer]' ./plugins/campaigns ./plugins/embeddings ./plugins/evaluation ./plugins/lake ./plugins/mcp ./plugins/milvus ./plugins/personalizer ./plugins/streams ./plugins/upgrade
# A seventh of what is installed are tests of packages, which nothing imports.
RUN find /opt/shortlist -type d -name tests -prune -exec rm -rf {} +

FROM python:3.12-slim
COPY --from=build /opt/shortlist /opt/shortlist
RUN install --directory --owner=10001 --group=10001 --mode=0700 /data
ENV PATH=/opt/shortlist/bin:$PATH PYTHONUNBUFFERED=1 SHORTLIST_HOST=0.0.0.0 SHORTLIST_DATA_DIR=/data
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
ENTRYPOINT ["shortlist"]
CMD ["serve"]
