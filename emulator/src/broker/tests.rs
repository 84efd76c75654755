//! The broker as its callers see it, in virtual time.
