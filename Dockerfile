# One Oncelog node, and the `oncelog` command with its web console.
#
#   docker build -t oncelog .
#   docker run -p 127.0.0.1:7001:7001 -e ONCELOG_ADVERTISE=localhost:7001 \
#     -e ONCELOG_INSECURE=true -v oncelog:/data oncelog
#
# ONCELOG_INSECURE: the port is published on this machine's loopback only. For others see
# docs/security.md; certificates may lie in /certs, which is the user's.
#
# Settings are ONCELOG_* variables (`docker run oncelog --help`). The address to
# advertise has no default: only who publishes the port knows it.
#
# scripts/image builds it for a release: with the base's digest, labels and a bill of materials.
#
# BASE is any Debian-like image with Python 3.11 or later, its venv and pip.
# BUILD_BASE is the same for this machine's processor; a registry has both under one name.
# Packages come from the index at their locked versions or, without network,
# from ./wheelhouse (scripts/wheelhouse fills it on a machine that has one).
ARG BASE=python:3.12-slim
ARG BUILD_BASE=${BASE}

FROM ${BASE} AS target

# All that runs runs here, so an image for another processor needs no emulation.
# "linux" is this machine's processor, for a builder that does not know BUILDPLATFORM.
FROM --platform=${BUILDPLATFORM:-linux} ${BUILD_BASE} AS build
ARG UV_VERSION=0.13.8
ARG TARGETARCH
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore \
    UV_NO_CACHE=1 UV_LINK_MODE=copy UV_NO_PYTHON_DOWNLOADS=1
WORKDIR /build
# The brackets make a pattern of the last name, and a pattern may match nothing.
COPY pyproject.toml uv.lock wheelhous[e] /build/
COPY packaging/server/pyproject.toml /build/packaging/server/
RUN set -eu; \
    case "${TARGETARCH:-}" in \
      amd64) set -- --python-platform x86_64-manylinux_2_28 ;; \
      arm64) set -- --python-platform aarch64-manylinux_2_28 ;; \
    esac; \
    set -- "$@" --python /opt/venv/bin/python; \
    offline=""; \
    if [ -f requirements.txt ]; then offline="--no-index --find-links /build"; fi; \
    python3 -m venv /opt/venv; \
    /opt/venv/bin/python -m pip install --target /tmp/uv ${offline} "uv==${UV_VERSION}"; \
    if [ -n "${offline}" ]; then \
      /tmp/uv/bin/uv pip sync "$@" ${offline} requirements.txt; \
    else \
      UV_PROJECT_ENVIRONMENT=/opt/venv /tmp/uv/bin/uv sync "$@" --locked --no-install-project \
        --extra node --extra console; \
    fi; \
    rm -rf /tmp/uv; \
    rm -rf /opt/venv/lib/python*/site-packages/pip /opt/venv/lib/python*/site-packages/pip-*; \
    /opt/venv/bin/python -m compileall -q /opt/venv/lib

COPY oncelog/ /app/oncelog/
COPY cluster/ /app/cluster/
COPY storage/ /app/storage/
RUN set -eu; \
    /opt/venv/bin/python -m compileall -q /app; \
    printf '#!/bin/sh\nexec /opt/venv/bin/python -c "from oncelog.cli import main; main()" "$@"\n' \
      > /opt/venv/bin/oncelog; \
    chmod 755 /opt/venv/bin/oncelog; \
    case "${TARGETARCH:-}-$(uname -m)" in \
      amd64-aarch64 | arm64-x86_64) ;; \
      *) cd /app; /opt/venv/bin/python -c "import oncelog, cluster, storage" ;; \
    esac

COPY --from=target /etc/passwd /etc/group /target/etc/
COPY --from=target /usr/lib/os-release /target/usr/lib/
COPY --from=target /var/lib/dpkg/status /target/var/lib/dpkg/
COPY packaging/image/sbom.py /build/
ARG VERSION=0.1.0
# The user's number is fixed, so that a volume fits the next image as well.
RUN set -eu; \
    /opt/venv/bin/python -I -B sbom.py "${VERSION}" /target > sbom.cdx.json; \
    echo "oncelog:x:10001:" >> /target/etc/group; \
    echo "oncelog:x:10001:10001::/data:/usr/sbin/nologin" >> /target/etc/passwd; \
    mkdir -p /target/own; mkdir -m 750 /target/own/data /target/own/certs

FROM target
ARG VERSION=0.1.0
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
COPY --from=build /target/etc/ /etc/
COPY --from=build --chown=10001:10001 /target/own/ /
# What is installed: docker run --rm --entrypoint cat IMAGE /usr/share/oncelog/sbom.cdx.json
COPY --from=build /build/sbom.cdx.json /usr/share/oncelog/
# GRPC_DNS_RESOLVER: see docker-compose.yml.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    GRPC_DNS_RESOLVER=native \
    ONCELOG_DATA_DIR=/data \
    ONCELOG_LISTEN=0.0.0.0:7001 \
    ONCELOG_HEALTH_LISTEN=127.0.0.1:7080
WORKDIR /data
USER 10001:10001
VOLUME /data
# Clients; peers (peer_port_offset above).
EXPOSE 7001 17001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-I", "-S", "/app/cluster/health_check.py"]
ENTRYPOINT ["oncelog", "server"]
# Last: a change of these builds nothing anew.
ARG BASE
ARG BASE_DIGEST=
ARG REVISION=
ARG CREATED=
LABEL org.opencontainers.image.title="Oncelog" \
    org.opencontainers.image.description="Node of Oncelog, a replicated, partitioned log that keeps every record once" \
    org.opencontainers.image.url="https://github.com/oncelog/oncelog" \
    org.opencontainers.image.source="https://github.com/oncelog/oncelog" \
    org.opencontainers.image.documentation="https://github.com/oncelog/oncelog/blob/main/docs/operations.md" \
    org.opencontainers.image.vendor="The Oncelog authors" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.created="${CREATED}" \
    org.opencontainers.image.base.name="${BASE}" \
    org.opencontainers.image.base.digest="${BASE_DIGEST}"
