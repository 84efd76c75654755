# syntax=docker/dockerfile:1
# The image of `wakeq`: one binary, no shell, no package manager. `docker build -t wakeq .`
#
# For a program with handlers of your own, copy this file beside its manifest and build it with
# `--build-arg PACKAGE=my-worker --build-arg BINARY=my-worker`.
ARG BUILDER=docker.io/library/rust:1.95-slim-bookworm
ARG RUNTIME=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILDER} AS build
ARG PACKAGE=wakeq
ARG BINARY=wakeq
# What aws-lc, the TLS library's core, is compiled with.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends cmake g++ make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Dependencies first: this layer lasts until a manifest, the lock file or the toolchain changes. The members' own code is
# an empty file each, which the next copy replaces.
COPY rust-toolchain.toml Cargo.toml Cargo.lock sqlx.toml ./
COPY emulator/Cargo.toml emulator/Cargo.toml
COPY dev/Cargo.toml dev/Cargo.toml
COPY xtask/Cargo.toml xtask/Cargo.toml
RUN mkdir -p src emulator/src dev/src xtask/src tests/it benches \
    && touch src/lib.rs emulator/src/lib.rs dev/src/lib.rs tests/it/main.rs \
    && for main in src dev/src xtask/src; do echo 'fn main() {}' > "$main/main.rs"; done \
    && echo 'fn main() {}' > benches/queue.rs
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    cargo build --locked --profile image --package "${PACKAGE}" --bin "${BINARY}"
COPY . .
# Cargo goes by the time of a file, and a copied one may be older than the empty one before it.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    find . -name '*.rs' -not -path './target/*' -exec touch {} + \
    && cargo build --locked --profile image --package "${PACKAGE}" --bin "${BINARY}" \
    && cp "target/image/${BINARY}" /wakeq

# A base with glibc, certificates and nothing else; it is replaceable by any other that has those.
FROM ${RUNTIME}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="wakeq" \
      org.opencontainers.image.description="A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /wakeq /wakeq
# Numeric, so that Kubernetes can see that it is not root. Nothing is written: the root may be read-only.
USER 65532:65532
WORKDIR /
ENV PORT=8080
EXPOSE 8080
STOPSIGNAL SIGTERM
# Asks the server of this container; switch it off where the command is `work`, which serves nothing.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["/wakeq", "health"]
ENTRYPOINT ["/wakeq"]
CMD ["all"]
