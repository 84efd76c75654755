//! Who may call: keys, Google's ID tokens, their scopes, and the record of what they changed.

mod audit;
mod flood;
mod key_scopes;
mod keys;
mod tokens;
