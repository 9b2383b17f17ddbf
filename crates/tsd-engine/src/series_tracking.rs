//! Starts what follows a write: the actor that records series, and the actor that places them in trees.

use std::sync::Arc;

use tsd_meta::Trees;
use tsd_runtime::ActorRef;

use crate::{
    config::MetaTracking,
    engine_start::EngineStart,
    meta_tracking::{MetaTracker, TrackerMessage, TrackerSettings},
    tree_processor::{TreeMetrics, TreeProcessor, TreeQueue},
};

/// Mailbox capacity of the meta tracker: one message per chunk.
const META_MAILBOX: usize = 4_096;
/// Mailbox capacity of the tree processor: one message per step of the meta tracker.
const TREE_MAILBOX: usize = 1_024;

/// The actors that handle new series.
#[derive(Debug)]
pub(crate) struct SeriesTracking {
    /// `None` if series are not recorded in the meta table.
    pub(crate) tracker: Option<ActorRef<TrackerMessage>>,
    /// `None` if new series are not placed in trees.
    pub(crate) trees: Option<TreeQueue>,
}

impl SeriesTracking {
    /// Starts the actors that the configuration asks for.
    pub(crate) fn start(start: EngineStart<'_>, trees: &Trees) -> Self {
        let trees = start.config.tree_processing.then(|| spawn_processor(start, trees));
        let tracker = (start.config.meta_tracking != MetaTracking::Off)
            .then(|| spawn_tracker(start, trees.clone()));
        Self { tracker, trees }
    }

    /// Waits until the meta data of all stored points is written and their series are placed in trees, or until either
    /// has failed.
    pub(crate) async fn drain(&self) {
        if let Some(tracker) = &self.tracker {
            // An actor that does not reply has nothing pending.
            let _ = tracker.ask(TrackerMessage::Drain).await;
        }
        if let Some(trees) = &self.trees {
            trees.drain().await;
        }
    }
}

fn spawn_processor(start: EngineStart<'_>, trees: &Trees) -> TreeQueue {
    let metrics = TreeMetrics::new();
    let (trees, of_actor) = (trees.clone(), metrics.clone());
    let processor = start
        .threads
        .get(2)
        .spawn("trees", TREE_MAILBOX, move || TreeProcessor::new(trees.clone(), of_actor.clone()));
    TreeQueue::new(processor, metrics)
}

fn spawn_tracker(start: EngineStart<'_>, trees: Option<TreeQueue>) -> ActorRef<TrackerMessage> {
    let EngineStart { config, storage, threads } = start;
    let settings = TrackerSettings {
        storage: Arc::clone(storage),
        table: config.tables.meta.clone(),
        tracking: config.meta_tracking,
        clock: Arc::clone(&config.clock),
        dropped: metrics::counter!("tsd_meta_tracking_dropped_total"),
        trees,
    };
    threads.get(1).spawn("meta", META_MAILBOX, move || MetaTracker::new(settings.clone()))
}
