//! The publisher to a file of JSON lines, with rotation by size.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use tsd_engine::PluginBatch;

use super::{
    json_lines,
    sink::{Sink, SinkError, blocking},
};

/// Appends lines to a file.
pub(super) struct FilePublisher {
    /// `None` while a write is in progress, and after it panicked.
    file: Option<RotatedFile>,
}

impl FilePublisher {
    pub(super) fn open(path: PathBuf, max_bytes: u64, keep: u32) -> io::Result<Self> {
        Ok(Self { file: Some(RotatedFile::open(path, max_bytes, keep)?) })
    }
}

impl Sink for FilePublisher {
    async fn deliver(&mut self, batch: &PluginBatch) -> Result<u64, SinkError> {
        let lines = json_lines::render(batch);
        let Some(mut file) = self.file.take() else {
            return Err(SinkError::Refused(
                "the publisher has no open file since a write failed unexpectedly".to_owned(),
            ));
        };
        let work = move || {
            let written = file.append(lines.as_bytes());
            Ok((file, written))
        };
        let (file, written) = blocking(work).await?;
        self.file = Some(file);
        written?;
        Ok(0)
    }
}

/// A file that is renamed when it is full. `PATH.1` is the newest renamed file.
struct RotatedFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    max_bytes: u64,
    keep: u32,
}

impl RotatedFile {
    fn open(path: PathBuf, max_bytes: u64, keep: u32) -> io::Result<Self> {
        let (file, bytes) = open_end(&path)?;
        Ok(Self { path, file, bytes, max_bytes, keep })
    }

    /// Appends all of the bytes, or nothing.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + lines.len() as u64 > self.max_bytes {
            self.rotate()?;
        }
        if let Err(error) = self.file.write_all(lines) {
            // Removes a partial line before the next attempt.
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.keep == 0 {
            self.file.set_len(0)?;
            self.bytes = 0;
            return Ok(());
        }
        for number in (1..self.keep).rev() {
            let from = numbered(&self.path, number);
            if from.exists() {
                fs::rename(from, numbered(&self.path, number + 1))?;
            }
        }
        fs::rename(&self.path, numbered(&self.path, 1))?;
        (self.file, self.bytes) = open_end(&self.path)?;
        Ok(())
    }
}

fn open_end(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_full_file_is_renamed_and_so_many_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("points.json");
        let mut file = RotatedFile::open(path.clone(), 10, 2).unwrap();
        for line in ["line 1\n", "line 2\n", "line 3\n", "line 4\n"] {
            file.append(line.as_bytes()).unwrap();
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(read(&path), "line 4\n");
        assert_eq!(read(&numbered(&path, 1)), "line 3\n");
        assert_eq!(read(&numbered(&path, 2)), "line 2\n");
        assert!(!numbered(&path, 3).exists());
        drop(file);
        let mut again = RotatedFile::open(path.clone(), 100, 2).unwrap();
        again.append(b"line 5\n").unwrap();
        assert_eq!(read(&path), "line 4\nline 5\n");
    }
}
