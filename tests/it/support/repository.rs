//! Where the repository is, for tests that read its files.

use std::path::{Path, PathBuf};

/// The repository's folder, which holds that of this package.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("service/ is in the repository").to_owned()
}
