//! Services for development and tests.
