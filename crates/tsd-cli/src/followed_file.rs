//! A text file that is read at the start and read again while the daemon runs.
//!
//! At start an invalid file is an error. Later it is reported, and what was read before stays in force: an
//! editor that saves in two steps must not remove users, rules or points. What a file says is elsewhere.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

/// Maximum size of a file, bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// How often a file is looked at.
const PERIOD: Duration = Duration::from_secs(10);

/// A file, its content at the last read, and what it is read for.
#[derive(Clone, Debug)]
pub struct FollowedFile {
    path: PathBuf,
    /// What the content is, for the log.
    what: &'static str,
    /// Valid or not.
    text: String,
    /// Why the file is not in force, if it is not.
    problem: Option<String>,
    period: Duration,
}

/// The task that follows a file; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct FileFollower {
    read_again: Arc<Notify>,
    _task: AbortOnDropHandle<()>,
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
        let file = Self { path: path.to_owned(), what, text, problem: None, period: PERIOD };
        Ok((file, content))
    }

    /// Looks at the file at another period than every 10 seconds.
    pub(crate) const fn with_period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Applies the content whenever it changes, or the problem that keeps the former content in force. Looks
    /// at the file at every period, and when the follower is told to.
    pub(crate) fn follow<T, E: Display>(
        mut self,
        parse: impl Fn(&str) -> Result<T, E> + Send + 'static,
        apply: impl Fn(Result<T, &str>) + Send + 'static,
    ) -> FileFollower {
        let read_again = Arc::new(Notify::new());
        let notified = Arc::clone(&read_again);
        let task = async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(self.period) => {}
                    () = notified.notified() => {}
                }
                let path = self.path.clone();
                // An error here is a panic or a shutdown of the runtime.
                let Ok(text) = tokio::task::spawn_blocking(move || read(&path)).await else {
                    return;
                };
                if let Some(change) = self.change(text, &parse) {
                    apply(change);
                }
            }
        };
        FileFollower { read_again, _task: AbortOnDropHandle::new(tokio::spawn(task)) }
    }

    /// What is to be applied after a read: nothing, if that is in force already.
    fn change<T, E: Display>(
        &mut self,
        text: Result<String, FollowedFileError>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Result<T, &str>> {
        let (file, what) = (self.path.display(), self.what);
        let content = match text {
            Ok(text) if text == self.text && self.problem.is_none() => return None,
            Ok(text) => {
                let content = parse(&text).map_err(|error| error.to_string());
                self.text = text;
                content
            }
            Err(error) => Err(error.to_string()),
        };
        match content {
            Ok(content) => {
                tracing::info!(%file, "{what} replaced");
                self.problem = None;
                Some(Ok(content))
            }
            Err(error) => {
                let problem =
                    format!("the file of {what} {file} is invalid; they are unchanged: {error}");
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!(%file, %error, "the file of {what} is invalid; they are unchanged");
                }
                Some(Err(self.problem.insert(problem)))
            }
        }
    }
}

impl FileFollower {
    /// Looks at the file now.
    pub(crate) fn read_again(&self) {
        self.read_again.notify_one();
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
        assert_eq!(file.change(read(&path), parse), None, "the same");
        for broken in [Ok("x".to_owned()), read(directory.path())] {
            let problem = file.change(broken, parse).unwrap().unwrap_err();
            assert!(problem.contains("is invalid; they are unchanged"), "{problem}");
        }
        // It is as before again.
        assert_eq!(file.change(Ok("1".to_owned()), parse), Some(Ok(1)));
        assert_eq!(file.change(Ok("1".to_owned()), parse), None);
        let seen = Arc::new(Mutex::new(0));
        let applied = Arc::clone(&seen);
        let file = file.with_period(Duration::from_hours(24));
        let follower = file.follow(parse, move |number| *applied.lock().unwrap() = number.unwrap());
        fs::write(&path, "2").unwrap();
        follower.read_again();
        while *seen.lock().unwrap() != 2 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_file_is_looked_at_every_period() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers");
        fs::write(&path, "1").unwrap();
        let (file, _) = FollowedFile::open(&path, "numbers", parse).unwrap();
        let (changed, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let _follower = file
            .with_period(Duration::from_millis(1))
            .follow(parse, move |number| changed.send(number.unwrap()).unwrap());
        fs::write(&path, "2").unwrap();
        assert_eq!(seen.recv().await, Some(2));
    }
}
