//! The folder with the data: its lock, its file, and how another takes that file's place.

use std::fs::{File, OpenOptions, TryLockError, create_dir_all, remove_file, rename};
use std::io::{self, BufReader, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::frames::{self, FIRST_LINE, FormError, Frames, Next};
use super::records::{self, UnknownRecord};
use crate::broker::{Change, Misfit, Saved};
use crate::server::stderr;

const FILE: &str = "data";
/// What is to take its place, while it is written.
const NEW_FILE: &str = "data.new";
const LOCK: &str = "lock";

/// So many bytes are written at once, when there are more.
pub(super) const WRITTEN_AT_ONCE: usize = 1 << 20;

/// The open file of a folder that no other process uses.
#[derive(Debug)]
pub(crate) struct DataFile {
    folder: PathBuf,
    file: File,
    /// Where the next frame goes.
    length: u64,
    /// Locked as long as it is open.
    _lock: File,
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Form(#[from] FormError),
    #[error(transparent)]
    Record(#[from] UnknownRecord),
    #[error(transparent)]
    Change(#[from] Misfit),
}

impl DataFile {
    /// Opens the file of a folder, and reads what it has. Makes both, if they are not there. A
    /// change at the end that was not written whole is cut off, and said on stderr. It changes and
    /// removes nothing before it has read the file.
    ///
    /// # Errors
    ///
    /// If the folder is in use, or can't be read and written, or its file is not one of this
    /// version; the message names it.
    pub(crate) fn open(folder: &Path) -> io::Result<(Self, Saved)> {
        if folder.is_file() {
            let words = format!("{}: this is a file, and the data needs a folder", folder.display());
            return Err(io::Error::new(ErrorKind::NotADirectory, words));
        }
        create_dir_all(folder).map_err(|error| about(folder, &error))?;
        let _lock = lock(folder)?;
        let path = folder.join(FILE);
        let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let new = write_new(folder, std::iter::empty()).map_err(|error| about(folder, &error));
                let (file, length) = new?;
                return Ok((Self { folder: folder.to_owned(), file, length, _lock }, Saved::default()));
            }
            Err(error) => return Err(about(&path, &error)),
        };
        let unreadable = |error: ReadError| io::Error::new(ErrorKind::InvalidData, advice(&path, &error));
        let length = file.metadata().map_err(|error| about(&path, &error))?.len();
        let (saved, sound) = read(&file, length).map_err(unreadable)?;
        match remove_file(folder.join(NEW_FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(about(folder, &error)),
            Ok(()) | Err(_) => {}
        }
        let length = cut(&mut file, length, sound, &path).map_err(|error| about(&path, &error))?;
        Ok((Self { folder: folder.to_owned(), file, length, _lock }, saved))
    }

    /// A file that is not in its folder.
    #[cfg(test)]
    pub(super) fn on(folder: &Path, file: File) -> io::Result<Self> {
        Ok(Self { folder: folder.to_owned(), length: 0, _lock: file.try_clone()?, file })
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Appends frames. It returns when the system has them, so that they survive the process; they
    /// may not survive the system.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes);
        if written.is_err() {
            // Without success, the next start cuts it off.
            let _tidy = self.file.set_len(self.length);
            return written;
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes a new file with these changes, and puts it in the place of the old one. If that
    /// fails, the old one is still there and in use.
    pub(super) fn replace(&mut self, parts: impl Iterator<Item = Vec<Change>>) -> io::Result<()> {
        (self.file, self.length) = write_new(&self.folder, parts)?;
        Ok(())
    }
}

fn lock(folder: &Path) -> io::Result<File> {
    let path = folder.join(LOCK);
    let options = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = options.map_err(|error| about(&path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let words =
                format!("{}: another emulator uses this folder: choose another one", folder.display());
            Err(io::Error::new(ErrorKind::ResourceBusy, words))
        }
        Err(TryLockError::Error(error)) => Err(about(&path, &error)),
    }
}

/// Reads a file from its beginning. Returns what it has, and where the last sound frame ends.
fn read(file: &File, length: u64) -> Result<(Saved, u64), ReadError> {
    let mut saved = Saved::default();
    let input = BufReader::with_capacity(WRITTEN_AT_ONCE, file);
    let Some(mut frames) = Frames::open(input, length)? else { return Ok((saved, 0)) };
    loop {
        match frames.read()? {
            Next::Frame(content) => {
                for change in records::decode(&content)? {
                    saved.apply(change)?;
                }
            }
            Next::End | Next::Torn => return Ok((saved, frames.sound())),
        }
    }
}

/// Cuts off what is not sound, and goes to the end. Returns the file's length.
fn cut(file: &mut File, length: u64, sound: u64, path: &Path) -> io::Result<u64> {
    if sound < length {
        let torn = length - sound;
        stderr::say(format!(
            "pubsub-emulator: {}: the last change was not written whole: its {torn} bytes are cut off\n",
            path.display()
        ));
        file.set_len(sound)?;
    }
    file.seek(SeekFrom::Start(sound))?;
    if sound == 0 {
        file.write_all(FIRST_LINE)?;
        return Ok(FIRST_LINE.len() as u64);
    }
    Ok(sound)
}

/// Writes a file, puts it in place, and returns it with its length. It is whole whenever it is in
/// its place, even after a loss of power.
fn write_new(folder: &Path, parts: impl Iterator<Item = Vec<Change>>) -> io::Result<(File, u64)> {
    let path = folder.join(NEW_FILE);
    let written = write_whole(&path, parts);
    let placed = written.and_then(|written| rename(&path, folder.join(FILE)).map(|()| written));
    if placed.is_err() {
        // If the disk is full, what is appended to the old one needs the room.
        let _tidy = remove_file(&path);
    }
    // Not every system can sync a folder; then a loss of power may bring back the old file.
    let _best = File::open(folder).and_then(|folder| folder.sync_all());
    placed
}

fn write_whole(path: &Path, parts: impl Iterator<Item = Vec<Change>>) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let mut bytes = FIRST_LINE.to_vec();
    let mut length = 0;
    for part in parts {
        frames::push(&mut bytes, |bytes| records::encode(bytes, part))?;
        if bytes.len() >= WRITTEN_AT_ONCE {
            file.write_all(&bytes)?;
            length += bytes.len() as u64;
            bytes.clear();
        }
    }
    file.write_all(&bytes)?;
    length += bytes.len() as u64;
    file.sync_all()?;
    Ok((file, length))
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn advice(path: &Path, error: &ReadError) -> String {
    format!("{}: {error}. Move the file away to start without it", path.display())
}
