//! The publisher to a file of JSON lines, with rotation by size.

use std::{io, path::PathBuf, time::SystemTime};

use tsd_engine::PluginBatch;

use super::{
    json_lines,
    sink::{Sink, SinkError, blocking},
};
use crate::rotated_file::{RotatedFile, Rotation};

/// Permissions of a new file, which the umask reduces.
const MODE: u32 = 0o666;

/// Appends lines to a file.
pub(super) struct FilePublisher {
    /// `None` while a write is in progress, and after it panicked.
    file: Option<RotatedFile>,
}

impl FilePublisher {
    pub(super) fn open(path: PathBuf, max_bytes: u64, keep: u32) -> io::Result<Self> {
        let rotation = Rotation { max_bytes, max_age: None, keep, mode: MODE };
        Ok(Self { file: Some(RotatedFile::open(path, rotation)?) })
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
            let written = file
                .rotate_if_due(lines.len(), SystemTime::now())
                .and_then(|()| file.append(lines.as_bytes()));
            Ok((file, written))
        };
        let (file, written) = blocking(work).await?;
        self.file = Some(file);
        written?;
        Ok(0)
    }
}
