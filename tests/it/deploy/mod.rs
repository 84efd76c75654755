//! What users get and run: packages, the image, `deploy/`, and the text of a release.

mod container;
mod packages;
mod release;
mod scaler;
