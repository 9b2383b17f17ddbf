//! The state that all ranges of a copy share.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tsd_engine::EngineHandle;
use tsd_model::MetricUid;

use super::{
    key_map::KeyMap,
    options::{CopyObserver, CopyRun},
    pace::CopyPace,
    progress::TotalProgress,
    range_rows::ReadSide,
};

/// State that all ranges of a copy share.
pub(super) struct CopyContext {
    pub(super) from: EngineHandle,
    pub(super) to: EngineHandle,
    pub(super) source: ReadSide,
    pub(super) run: CopyRun,
    /// `None` if both stores have the same keys.
    pub(super) map: Option<KeyMap>,
    pub(super) pace: CopyPace,
    /// Selected metrics of the source; `None` selects all.
    pub(super) metrics: Option<BTreeSet<MetricUid>>,
    pub(super) observer: Arc<dyn CopyObserver>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) progress: TotalProgress,
}

impl CopyContext {
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
