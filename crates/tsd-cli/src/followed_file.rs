//! A text file that is read at the start and read again while the daemon runs.
//!
//! At start an invalid file is an error. Later it is logged, and what was read before stays in force: an
//! editor that saves in two steps must not remove users or rules for a moment.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::Notify;

/// Maximum size of a file, bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// How often a file is looked at.
const PERIOD: Duration = Duration::from_secs(10);

/// A file, its content at the last read, and what it is read for.
#[derive(Debug)]
pub(crate) struct FollowedFile {
    path: PathBuf,
    /// What the content is, for the log.
    what: &'static str,
    /// Valid or not.
    text: String,
    period: Duration,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowedFileError {
    /// It cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is too large.
    #[error("the file is larger than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// Its content is not valid.
    #[error("{0}")]
    Invalid(String),
}

impl FollowedFile {
    /// Reads and parses the file.
    pub(crate) fn open<T, E: Display>(
        path: &Path,
        what: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<(Self, T), FollowedFileError> {
        let text = read(path)?;
        let content = parse(&text).map_err(|e| FollowedFileError::Invalid(e.to_string()))?;
        Ok((Self { path: path.to_owned(), what, text, period: PERIOD }, content))
    }

    /// Applies the content whenever it changes; looks at the file at every period and notification.
    /// Never returns.
    pub(crate) async fn follow<T, E: Display>(
        mut self,
        read_again: Arc<Notify>,
        parse: impl Fn(&str) -> Result<T, E>,
        apply: impl Fn(T),
    ) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.period) => {}
                () = read_again.notified() => {}
            }
            let path = self.path.clone();
            // An error here is a panic or a shutdown of the runtime.
            let Ok(text) = tokio::task::spawn_blocking(move || read(&path)).await else { return };
            if let Some(content) = self.changed(text, &parse) {
                apply(content);
            }
        }
    }

    /// What was read, if it differs from before and is valid.
    fn changed<T, E: Display>(
        &mut self,
        text: Result<String, FollowedFileError>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let (file, what) = (self.path.display(), self.what);
        let text = match text {
            Ok(text) if text == self.text => return None,
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%file, %error, "the file of {what} is invalid; they are unchanged");
                return None;
            }
        };
        let content = match parse(&text) {
            Ok(content) => {
                tracing::info!(%file, "{what} replaced");
                Some(content)
            }
            Err(error) => {
                tracing::warn!(%file, %error, "the file of {what} is invalid; they are unchanged");
                None
            }
        };
        self.text = text;
        content
    }
}

fn read(path: &Path) -> Result<String, FollowedFileError> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(FollowedFileError::TooLarge);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{fs, num::ParseIntError, sync::Mutex};

    use super::*;

    fn parse(text: &str) -> Result<i32, ParseIntError> {
        text.trim().parse()
    }

    #[tokio::test]
    async fn a_changed_file_is_applied_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers");
        assert!(FollowedFile::open(&path, "numbers", parse).is_err());
        fs::write(&path, "x").unwrap();
        let error = FollowedFile::open(&path, "numbers", parse).unwrap_err();
        assert_eq!(error.to_string(), "invalid digit found in string");
        fs::write(&path, "1").unwrap();
        let (mut file, first) = FollowedFile::open(&path, "numbers", parse).unwrap();
        assert_eq!(first, 1);
        assert_eq!(file.changed(read(&path), parse), None, "the same");
        assert_eq!(file.changed(Ok("x".to_owned()), parse), None);
        assert_eq!(file.changed(read(directory.path()), parse), None);
        let (seen, read_again) = (Arc::new(Mutex::new(0)), Arc::new(Notify::new()));
        let (applied, notified) = (Arc::clone(&seen), Arc::clone(&read_again));
        let following = tokio::spawn(async move {
            file.follow(notified, parse, |number| *applied.lock().unwrap() = number).await;
        });
        fs::write(&path, "2").unwrap();
        read_again.notify_one();
        while *seen.lock().unwrap() != 2 {
            tokio::task::yield_now().await;
        }
        following.abort();
    }
}
