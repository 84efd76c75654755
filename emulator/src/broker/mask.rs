//! mask
