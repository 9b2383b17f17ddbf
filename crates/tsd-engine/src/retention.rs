//! Tells names of metrics to the rules of a retention.

use tsd_model::{Family, UidKind};
use tsd_storage::{Retention, Scan, StorageError};

use crate::engine_shared::EngineShared;

/// Tells the names of all metrics to the retention. The first point of a new metric tells its name.
pub(crate) async fn learn_metrics(
    shared: &EngineShared,
    retention: &Retention,
) -> Result<(), StorageError> {
    // Called before the scan, so that metrics created later tell their names with their first point.
    retention.ask_for_names();
    let qualifier = UidKind::Metric.as_str().as_bytes();
    let width = shared.config.schema.metric_width();
    let scan =
        Scan { family: Some(Family::Name), qualifier: Some(qualifier.into()), ..Scan::default() };
    let mut rows = shared.storage.scan(&shared.config.tables.uid, scan);
    while let Some(batch) = rows.next_rows().await? {
        for row in batch.iter().filter(|row| row.key.len() == width) {
            let name = row.cells.iter().find(|cell| *cell.qualifier == *qualifier);
            if let Some(name) = name {
                retention.learn(&row.key, &name.value);
            }
        }
    }
    Ok(())
}
