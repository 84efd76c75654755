# The images of `wakeq` and of its Pub/Sub emulator: one binary each, no shell, no package manager.
# `docker build --tag wakeq .`, `docker build --target wakeq-emulator --tag pubsub-emulator .`
#
# For a program with your own handlers see docs/container.md. The base images have tags here; a release resolves them to
# digests, which its provenance names (.github/workflows/release.yml).
ARG BUILDER=docker.io/library/rust:1.95.0-slim-bookworm
ARG RUNTIME=gcr.io/distroless/cc-debian12:nonroot
ARG VERSION=0.1.0
ARG REVISION=unknown

FROM ${BUILDER} AS source
# Uses the builder's toolchain: with rust-toolchain.toml, rustup would download components that only developers need.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
# Copies the whole workspace, because Cargo refuses it if a member, test or benchmark is missing. Downloads and compiled
# crates stay in two caches. Cargo compares modification times, and a file may be older than what another checkout left in
# the cache, hence `touch`.
COPY . .

FROM source AS build-emulator
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,id=wakeq-target,target=/src/target,sharing=locked \
    find emulator -exec touch {} + \
    && cargo build --locked --profile image --package wakeq-emulator --bin pubsub-emulator \
    && mkdir /out && cp target/image/pubsub-emulator /out/

FROM source AS build
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,id=wakeq-target,target=/src/target,sharing=locked \
    find .sqlx migrations src streams service clients/rust -exec touch {} + \
    && cargo build --locked --profile image --package wakeq-service --bin wakeq \
    && mkdir /out && cp target/image/wakeq /out/

# Any base with glibc, libgcc and CA certificates works; the default has nothing else.
FROM ${RUNTIME} AS wakeq-emulator
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="wakeq-emulator" \
      org.opencontainers.image.description="A Google Cloud Pub/Sub emulator, for tests and development only" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build-emulator /out/ /
USER 65532:65532
WORKDIR /
ENV PUBSUB_EMULATOR_LISTEN_HOST=0.0.0.0
EXPOSE 8085
STOPSIGNAL SIGTERM
# Calls the emulator in this container; another port has to be in PUBSUB_EMULATOR_PORT.
HEALTHCHECK --interval=2s --timeout=5s --start-period=20s --retries=3 CMD ["/pubsub-emulator", "health"]
ENTRYPOINT ["/pubsub-emulator"]

# The last one, which is built unless a target is given.
FROM ${RUNTIME} AS wakeq
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="wakeq" \
      org.opencontainers.image.description="A durable event queue: Postgres holds every event; Google Cloud Pub/Sub, or Postgres itself, only wakes the workers" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/ /
# Numeric, so that Kubernetes can tell that it is not root. Nothing is written, so the root file system may be read-only.
USER 65532:65532
WORKDIR /
ENV PORT=8080
EXPOSE 8080
STOPSIGNAL SIGTERM
# Calls the server in this container; disable it if the command is `work`, which does not serve HTTP.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["/wakeq", "health"]
ENTRYPOINT ["/wakeq"]
CMD ["all"]
