//! What one canvas, credential or address may take, so that others are served as usual.

mod bytes;
mod full;
mod quotas;
mod shares;
