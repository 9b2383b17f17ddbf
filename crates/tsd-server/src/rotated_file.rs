//! A file of lines that is renamed when it is full or old, and replaced by a new one.
//!
//! `PATH.1` is the newest renamed file. Nothing is synced: a power failure can lose the last lines.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// When a file is renamed, and how many renamed files stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    /// Size at which the file is renamed, bytes.
    pub(crate) max_bytes: u64,
    /// Age at which the file is renamed; `None` for any age.
    pub(crate) max_age: Option<Duration>,
    /// Number of renamed files to keep. With 0, a full file is emptied.
    pub(crate) keep: u32,
    /// Permissions of a new file, which the umask of the process reduces.
    pub(crate) mode: u32,
}

/// A file to which lines are appended.
#[derive(Debug)]
pub(crate) struct RotatedFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    begun: SystemTime,
    rotation: Rotation,
}

impl RotatedFile {
    /// Opens the file, or creates it.
    pub(crate) fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        let (file, bytes, begun) = open_end(&path, rotation.mode)?;
        Ok(Self { path, file, bytes, begun, rotation })
    }

    /// Path of the current file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file if it is too old at `now`, or would be too large with `more` bytes.
    pub(crate) fn rotate_if_due(&mut self, more: usize, now: SystemTime) -> io::Result<()> {
        let is_full = self.bytes + more as u64 > self.rotation.max_bytes;
        let age = now.duration_since(self.begun).unwrap_or_default();
        let is_old = self.rotation.max_age.is_some_and(|max_age| age >= max_age);
        if self.bytes > 0 && (is_full || is_old) { self.rotate() } else { Ok(()) }
    }

    /// Opens the path again if it names another file, or none, since something else has renamed or removed the file.
    pub(crate) fn reopen_if_moved(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_own = |now: &fs::Metadata| (now.dev(), now.ino()) == (own.dev(), own.ino());
        if fs::metadata(&self.path).is_ok_and(|now| is_own(&now)) {
            return Ok(());
        }
        (self.file, self.bytes, self.begun) = open_end(&self.path, self.rotation.mode)?;
        Ok(())
    }

    /// Appends all of the bytes, or nothing.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines) {
            // Removes a partial line before the next attempt.
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let keep = self.rotation.keep;
        if keep == 0 {
            self.file.set_len(0)?;
            (self.bytes, self.begun) = (0, SystemTime::now());
            return Ok(());
        }
        for number in (1..keep).rev() {
            let from = numbered(&self.path, number);
            if from.exists() {
                fs::rename(from, numbered(&self.path, number + 1))?;
            }
        }
        fs::rename(&self.path, numbered(&self.path, 1))?;
        (self.file, self.bytes, self.begun) = open_end(&self.path, self.rotation.mode)?;
        Ok(())
    }
}

/// Opens a file at its end. Returns its size and its birth, or its last change where the birth is unknown.
fn open_end(path: &Path, mode: u32) -> io::Result<(File, u64, SystemTime)> {
    let file = OpenOptions::new().create(true).append(true).mode(mode).open(path)?;
    let metadata = file.metadata()?;
    let begun = metadata.created().or_else(|_| metadata.modified())?;
    Ok((file, metadata.len(), begun))
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn rotation(max_bytes: u64, keep: u32) -> Rotation {
        Rotation { max_bytes, max_age: None, keep, mode: 0o600 }
    }

    fn add(file: &mut RotatedFile, line: &str) {
        file.rotate_if_due(line.len(), SystemTime::now()).unwrap();
        file.append(line.as_bytes()).unwrap();
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_full_file_is_renamed_and_the_newest_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("points.json");
        let mut file = RotatedFile::open(path.clone(), rotation(10, 2)).unwrap();
        for line in ["line 1\n", "line 2\n", "line 3\n", "line 4\n"] {
            add(&mut file, line);
        }
        assert_eq!(read(&path), "line 4\n");
        assert_eq!(read(&numbered(&path, 1)), "line 3\n");
        assert_eq!(read(&numbered(&path, 2)), "line 2\n");
        assert!(!numbered(&path, 3).exists());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(file);
        let mut again = RotatedFile::open(path.clone(), rotation(100, 2)).unwrap();
        add(&mut again, "line 5\n");
        assert_eq!(read(&path), "line 4\nline 5\n");
    }

    #[test]
    fn an_old_file_is_renamed_and_an_empty_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        let max_age = Some(Duration::from_hours(1));
        let mut file =
            RotatedFile::open(path.clone(), Rotation { max_age, ..rotation(100, 2) }).unwrap();
        let later = |minutes| SystemTime::now() + Duration::from_mins(minutes);
        file.rotate_if_due(1, later(61)).unwrap();
        file.append(b"1\n").unwrap();
        file.rotate_if_due(1, later(59)).unwrap();
        assert!(!numbered(&path, 1).exists());
        file.rotate_if_due(1, later(61)).unwrap();
        file.append(b"2\n").unwrap();
        assert_eq!((read(&numbered(&path, 1)).as_str(), read(&path).as_str()), ("1\n", "2\n"));
    }

    #[test]
    fn a_renamed_or_removed_file_is_created_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("lines"), directory.path().join("moved"));
        let mut file = RotatedFile::open(path.clone(), rotation(100, 2)).unwrap();
        file.append(b"1\n").unwrap();
        file.reopen_if_moved().unwrap();
        fs::rename(&path, &moved).unwrap();
        file.reopen_if_moved().unwrap();
        file.append(b"2\n").unwrap();
        fs::remove_file(&path).unwrap();
        file.reopen_if_moved().unwrap();
        file.append(b"3\n").unwrap();
        assert_eq!((read(&moved).as_str(), read(&path).as_str()), ("1\n", "3\n"));
    }
}
