//! The form of the file: a line that names it, and then frames. A frame is its length, the checksum
//! of that, the checksum of the content, and the content; numbers are 32 bits, the lowest first.
//!
//! A process that is killed leaves a beginning of what it was writing: the last frame may be torn,
//! and no other. Anything else that does not fit is damage, and never skipped.

use std::io::{self, Read};

/// The first line of a file. The number is that of the form.
pub(super) const FIRST_LINE: &[u8] = b"pubsub-emulator data 1\n";

/// How the first line of any form begins.
const ANY_FIRST_LINE: &[u8] = b"pubsub-emulator data ";

const HEAD: usize = 12;

/// Appends a frame. The content is what `write` appends.
pub(super) fn push(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
    let head = bytes.len();
    bytes.extend([0; HEAD]);
    write(bytes);
    let content = &bytes[head + HEAD..];
    let length = u32::try_from(content.len())
        .map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, "a change has more than 4 GiB"))?;
    let length = length.to_le_bytes();
    let sums = [crc32fast::hash(&length), crc32fast::hash(content)].map(u32::to_le_bytes);
    bytes[head..head + 4].copy_from_slice(&length);
    bytes[head + 4..head + 8].copy_from_slice(&sums[0]);
    bytes[head + 8..head + HEAD].copy_from_slice(&sums[1]);
    Ok(())
}

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum FormError {
    #[error("it is not a file of this emulator")]
    Foreign,
    #[error("it has the form of another version ({0}), and this one reads `pubsub-emulator data 1`")]
    OtherVersion(String),
    #[error("it is damaged at byte {0}")]
    Damaged(u64),
    #[error(transparent)]
    Unreadable(#[from] io::Error),
}

/// What comes next in a file.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// The content of a frame.
    Frame(Vec<u8>),
    /// The end, where it should be.
    End,
    /// A frame that was not written whole, and nothing after it.
    Torn,
}

/// Reads a file of this length from its beginning.
pub(super) struct Frames<R> {
    input: R,
    length: u64,
    /// Where the next frame begins: everything before it is sound.
    sound: u64,
}

impl<R: Read> Frames<R> {
    /// Reads the first line. `None` if the file is a beginning of that, so has nothing yet.
    pub(super) fn open(mut input: R, length: u64) -> Result<Option<Self>, FormError> {
        let mut line = Vec::new();
        input.by_ref().take(FIRST_LINE.len() as u64).read_to_end(&mut line)?;
        if line == FIRST_LINE {
            return Ok(Some(Self { input, length, sound: line.len() as u64 }));
        }
        if FIRST_LINE.starts_with(&line) {
            return Ok(None);
        }
        if line.starts_with(ANY_FIRST_LINE) {
            let line = String::from_utf8_lossy(&line);
            return Err(FormError::OtherVersion(format!("`{}`", line.lines().next().unwrap_or_default())));
        }
        Err(FormError::Foreign)
    }

    /// Where the frames end that were read.
    pub(super) fn sound(&self) -> u64 {
        self.sound
    }

    pub(super) fn read(&mut self) -> Result<Next, FormError> {
        let left = self.length.saturating_sub(self.sound);
        if left == 0 {
            return Ok(Next::End);
        }
        let mut head = [0; HEAD];
        if left < HEAD as u64 {
            return Ok(Next::Torn);
        }
        self.input.read_exact(&mut head)?;
        let [length, length_sum, content_sum] = [0, 4, 8].map(|at| number(&head, at));
        if crc32fast::hash(&head[..4]) != length_sum {
            // After a loss of power, a file may have grown without its content.
            let blank = head == [0; HEAD] && self.rest_is_blank()?;
            return if blank { Ok(Next::Torn) } else { Err(FormError::Damaged(self.sound)) };
        }
        let whole = HEAD as u64 + u64::from(length);
        if whole > left {
            return Ok(Next::Torn);
        }
        let mut content = Vec::new();
        self.input.by_ref().take(u64::from(length)).read_to_end(&mut content)?;
        if crc32fast::hash(&content) != content_sum || content.len() as u64 != u64::from(length) {
            let last = whole == left || self.rest_is_blank()?;
            return if last { Ok(Next::Torn) } else { Err(FormError::Damaged(self.sound)) };
        }
        self.sound += whole;
        Ok(Next::Frame(content))
    }

    fn rest_is_blank(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 8192];
        loop {
            match self.input.read(&mut bytes)? {
                0 => return Ok(true),
                count if bytes[..count].iter().any(|byte| *byte != 0) => return Ok(false),
                _ => {}
            }
        }
    }
}

fn number(head: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}
