//! Reports to the operator about opening a log.

use tracing::{error, info};
use tsd_storage_wal::{OpenError, ReplayReport};

/// Adds advice about a damaged log.
pub(super) fn explain_damage(error: OpenError) -> anyhow::Error {
    let is_damage = matches!(error, OpenError::Damaged { .. });
    let error = anyhow::Error::new(error);
    if is_damage {
        error.context("start with --accept-damage to continue without the lost records")
    } else {
        error
    }
}

pub(super) fn warn_of(report: &ReplayReport) {
    if let Some(tail) = &report.torn_tail {
        info!(
            file = %tail.file.display(),
            offset = tail.offset,
            bytes = tail.bytes,
            "cut off a write that was never finished"
        );
    }
    for lost in &report.lost {
        error!("lost, as accepted: {lost}");
    }
}
