//! The emulator's data on disk: a folder with one file, to which every change is appended, and
//! which is written anew when most of it is out of date.
//!
//! One thread writes. What a change means is the broker's; the form of the bytes is in `frames` and
//! `records`.

mod file;
mod frames;
mod journal;
mod records;
#[cfg(test)]
mod tests;

pub(crate) use file::DataFile;
pub(crate) use journal::Journal;
pub(in crate::server) use journal::Position;
