//! The plug-ins that get points: the real-time publisher and the storage exception handler.
//!
//! The publisher gets points that were stored, and the handler gets points that the store refused. Both get them at
//! the completion of a write, so each point is kept as a record until then. Without a plug-in, no record is kept. The
//! plug-ins themselves process their queues elsewhere.

mod queue;
mod record;

use std::sync::Arc;

use tsd_meta::AnnotationObserver;
use tsd_model::Annotation;

pub use self::{
    queue::{OnFull, PluginBatch, PluginItem, PluginItems, PluginQueue, plugin_queue},
    record::{PointRecord, RecordContent},
};
use crate::put_error::PutError;

/// The queues of the plug-ins that get points; `None` for a plug-in that is off.
#[derive(Clone, Debug, Default)]
pub struct PointPlugins {
    /// Gets stored points, histograms and annotations.
    pub publisher: Option<Arc<PluginQueue>>,
    /// Gets points that the store refused.
    pub exception_handler: Option<Arc<PluginQueue>>,
}

impl PointPlugins {
    /// True if points must be kept as records.
    pub(crate) const fn are_on(&self) -> bool {
        self.publisher.is_some() || self.exception_handler.is_some()
    }

    /// The queues.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Arc<PluginQueue>> {
        self.publisher.iter().chain(&self.exception_handler)
    }

    /// Waits while a queue that holds senders is full.
    pub(crate) async fn room(&self) {
        for queue in self.queues() {
            queue.room().await;
        }
    }

    /// Passes on points whose write has ended.
    pub(crate) fn written(&self, mut records: Vec<PointRecord>, result: Result<(), &PutError>) {
        match result {
            Ok(()) => {
                if let Some(publisher) = &self.publisher {
                    // OpenTSDB's publisher gets no rolled-up values either.
                    records.retain(|record| !matches!(record.content(), RecordContent::Rollup(_)));
                    publisher.push_points(records);
                }
            }
            Err(error) => {
                if let Some(handler) = &self.exception_handler
                    && error.is_of_store()
                {
                    handler.push_points(records);
                }
            }
        }
    }
}

impl AnnotationObserver for PointPlugins {
    fn stored(&self, annotation: &Annotation) {
        if let Some(publisher) = &self.publisher {
            publisher.push_annotation(annotation.clone());
        }
    }
}

#[cfg(test)]
mod tests;
