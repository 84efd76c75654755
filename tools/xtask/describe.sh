#!/bin/sh
# A rustc wrapper for `cargo xtask prepare`: puts the query metadata of each package into a folder
# of its own, below the one that the command has chosen.
SQLX_OFFLINE_DIR="$SQLX_OFFLINE_DIR/$CARGO_PKG_NAME" exec "$@"
