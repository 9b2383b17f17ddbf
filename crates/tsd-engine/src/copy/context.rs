//! What all parts of a copy share.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tsd_model::Uid;

use super::{
    key_map::KeyMap,
    options::{CopyObserver, CopyRun},
    pace::CopyPace,
    part_rows::ReadSide,
    progress::TotalProgress,
};
use crate::EngineHandle;

/// What all parts of a copy share.
pub(super) struct CopyContext {
    pub(super) from: EngineHandle,
    pub(super) to: EngineHandle,
    pub(super) source: ReadSide,
    pub(super) run: CopyRun,
    /// `None`: keys are the same.
    pub(super) map: Option<KeyMap>,
    pub(super) pace: CopyPace,
    /// Metrics of the source that are selected; `None`: all.
    pub(super) metrics: Option<BTreeSet<Uid>>,
    pub(super) observer: Arc<dyn CopyObserver>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) progress: TotalProgress,
}

impl CopyContext {
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
