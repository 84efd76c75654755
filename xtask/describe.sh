#!/bin/sh
# The compiler of this workspace's packages under `cargo xtask prepare`, which says where the
# descriptions of queries go: here each package gets a folder of its own.
SQLX_OFFLINE_DIR="$SQLX_OFFLINE_DIR/$CARGO_PKG_NAME" exec "$@"
