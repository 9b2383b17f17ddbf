//! Input, result and errors of an edit of an annotation.

use tsd_model::{Annotation, CustomFields, JsonError, TimestampError, Tsuid};
use tsd_storage::StorageError;

/// Fields to set in an annotation. A field that is absent or has its default value is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationEdit {
    /// The series; `None` for a global annotation.
    pub tsuid: Option<Tsuid>,
    /// Start in epoch seconds or milliseconds. Identifies the annotation of the series.
    pub start_time: i64,
    /// End in epoch seconds or milliseconds.
    pub end_time: Option<i64>,
    /// Short text.
    pub description: Option<String>,
    /// Long text.
    pub notes: Option<String>,
    /// Custom fields, which replace all stored custom fields.
    pub custom: Option<CustomFields>,
}

/// Result of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotationEditOutcome {
    /// The annotation as stored now.
    Stored(Annotation),
    /// The edit sets no field, so nothing was written.
    Unchanged,
}

/// Why an annotation was not read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AnnotationError {
    /// A start time below 1.
    #[error("The start timestamp has not been set")]
    NoStartTime,
    /// A start or end time that no annotation can have.
    #[error(transparent)]
    Timestamp(#[from] TimestampError),
    /// The annotation exceeds the size limit.
    #[error("The annotation has {bytes} bytes as JSON; the limit is {limit}. Shorten its texts")]
    TooLarge {
        /// Bytes of the annotation.
        bytes: usize,
        /// Most bytes of an annotation.
        limit: usize,
    },
    /// Every attempt conflicted with another writer.
    #[error("conflicting edits of the annotation")]
    Contended,
    /// The time is before the cut-off of the retention.
    #[error("The start time is too old: nothing before {0} is kept (tsd.storage.retention)")]
    Expired(u32),
    /// The cell is not a valid annotation.
    #[error("a stored annotation is invalid")]
    Unreadable(#[from] JsonError),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl AnnotationEdit {
    pub(super) fn sets_nothing(&self) -> bool {
        self.end_time.unwrap_or_default() == 0
            && self.description.as_ref().is_none_or(String::is_empty)
            && self.notes.as_ref().is_none_or(String::is_empty)
            && self.custom.is_none()
    }

    /// The annotation after the edit. Unset fields keep their stored values, unless the edit replaces all. If two
    /// start times have the same cell, the smaller is kept.
    pub(super) fn merged(&self, stored: Option<Annotation>, replace: bool) -> Annotation {
        let stored = stored.unwrap_or_default();
        let start_time = match stored.start_time {
            1.. => stored.start_time.min(self.start_time),
            _ => self.start_time,
        };
        let kept = if replace { Annotation::default() } else { stored };
        let text = |new: &Option<String>, kept: String| match new {
            Some(new) if !new.is_empty() => new.clone(),
            _ => kept,
        };
        Annotation {
            tsuid: self.tsuid.as_ref().map(ToString::to_string).unwrap_or_default(),
            start_time,
            end_time: self.end_time.filter(|end| *end != 0).unwrap_or(kept.end_time),
            description: text(&self.description, kept.description),
            notes: text(&self.notes, kept.notes),
            custom: self.custom.clone().or(kept.custom),
        }
    }
}
