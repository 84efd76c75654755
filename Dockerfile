# The image of `wakeq`: one binary, no shell, no package manager. `docker build --tag wakeq .`
#
# For a program with handlers of your own see docs/container.md.
ARG BUILDER=docker.io/library/rust:1.95.0-slim-bookworm
ARG RUNTIME=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILDER} AS build
# Another program of the workspace, for compose.yaml; it then needs another entry point.
ARG PACKAGE=wakeq-service
ARG PROGRAM=wakeq
# The builder's own toolchain: rust-toolchain.toml would have rustup fetch what only developers need.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
# The whole workspace, because Cargo refuses one with a member, test or benchmark missing. Downloads and compiled crates
# stay in two caches. Cargo compares modification times, and a file may be older than what another checkout left in the
# cache: hence `touch`.
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,id=wakeq-target,target=/src/target,sharing=locked \
    find .sqlx migrations src streams service emulator -exec touch {} + \
    && cargo build --locked --profile image --package ${PACKAGE} --bin ${PROGRAM} \
    && mkdir /out && cp target/image/${PROGRAM} /out/

# Any base will do that has glibc, libgcc and certificates; the default has nothing else.
FROM ${RUNTIME}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="wakeq" \
      org.opencontainers.image.description="A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/ /
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
