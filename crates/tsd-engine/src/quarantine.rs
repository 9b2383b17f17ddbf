//! Damaged files that the store has quarantined, with their losses by metric and time.

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::{BaseTime, RowKey, Uid, UidKind};
use tsd_storage::{LostRows, QuarantinedFile, StorageError};

use crate::{EngineHandle, engine_shared::EngineShared};

/// Most metrics that are listed for one range.
const MAX_LISTED_METRICS: u64 = 100;

/// A damaged file in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedPart {
    /// The file and the lost rows.
    pub file: QuarantinedFile,
    /// The contents of each range of lost rows, in the order of `file.lost`.
    pub lost: Vec<LostPoints>,
}

/// The contents of a range of rows, as far as the keys show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostPoints {
    /// Metrics that may have lost points, by name, or by UID if they have no name; `None` if any metric may.
    pub metrics: Option<Vec<String>>,
    /// Start of the first hour and end of the last hour in epoch seconds, if they are known.
    pub time: Option<(u64, u64)>,
}

impl EngineHandle {
    /// The damaged files that the store has quarantined and whose loss was not accepted yet.
    pub async fn quarantine(&self) -> Vec<QuarantinedPart> {
        let shared = self.shared();
        let Some(quarantine) = shared.storage.maintenance().quarantine() else { return Vec::new() };
        let mut parts = Vec::new();
        let files = tokio::task::spawn_blocking(move || quarantine.files()).await;
        // A panic of the task was reported already.
        for file in files.unwrap_or_default() {
            let mut lost = Vec::with_capacity(file.lost.len());
            for rows in &file.lost {
                lost.push(lost_points(shared, &file, rows).await);
            }
            parts.push(QuarantinedPart { file, lost });
        }
        parts
    }

    /// Accepts the loss of a quarantined file. Later reads return the intact data. Returns false if there is no such
    /// file.
    pub async fn accept_loss(&self, name: &str) -> Result<bool, StorageError> {
        let Some(quarantine) = self.shared().storage.maintenance().quarantine() else {
            return Ok(false);
        };
        let name = name.to_owned();
        let accepted = tokio::task::spawn_blocking(move || quarantine.accept(&name)).await;
        let accepted = accepted.unwrap_or(Err(StorageError::Closed))?;
        // Names may be lost.
        self.drop_caches();
        Ok(accepted)
    }
}

async fn lost_points(
    shared: &Arc<EngineShared>,
    file: &QuarantinedFile,
    rows: &LostRows,
) -> LostPoints {
    if rows.time_secs.is_some() && rows.first.is_none() {
        return LostPoints { metrics: None, time: rows.time_secs };
    }
    // The loss is a range of series in a time, not a range of keys.
    let of_time = |points: LostPoints| match rows.time_secs {
        Some(_) => LostPoints { time: rows.time_secs, ..points },
        None => points,
    };
    of_time(points_between(shared, file, rows).await)
}

/// The points between the first and the last key of lost rows.
async fn points_between(
    shared: &Arc<EngineShared>,
    file: &QuarantinedFile,
    rows: &LostRows,
) -> LostPoints {
    let config = &shared.config;
    let mut series_tables = config.rollups.iter().flat_map(tsd_read::Rollups::tables);
    if file.table != config.tables.data && !series_tables.any(|table| table == file.table) {
        return LostPoints::default();
    }
    let decode = |key: &Option<Bytes>| {
        let key = RowKey::decode(&config.schema, key.as_ref()?).ok()?;
        Some((key.salt().to_vec(), key.metric_uid().uid(), key.base_time()))
    };
    let (Some(first), Some(last)) = (decode(&rows.first), decode(&rows.last)) else {
        return LostPoints::default();
    };
    let ((salt, from, start), (last_salt, to, end)) = (first, last);
    let (from_number, to_number) = (from.to_number(), to.to_number());
    if salt != last_salt || !(from_number..from_number + MAX_LISTED_METRICS).contains(&to_number) {
        return LostPoints::default();
    }
    let uids: Vec<Uid> = (from_number..=to_number)
        .filter_map(|number| Uid::from_number(number, from.width()).ok())
        .collect();
    // The names may be in quarantine too.
    let names = shared.names.uids.names_of(UidKind::Metric, &uids).await;
    let names = names.unwrap_or_else(|_| vec![None; uids.len()]);
    let metrics = uids
        .iter()
        .zip(names)
        // A UID in between that has no name belongs to no metric.
        .filter(|(uid, name)| name.is_some() || **uid == from || **uid == to)
        .map(|(uid, name)| {
            name.unwrap_or_else(|| format!("UID {}", tsd_model::to_hex(uid.as_bytes())))
        })
        .collect();
    let time = (from == to).then(|| {
        let end = u64::from(end.as_secs()) + u64::from(BaseTime::SPAN_SECONDS);
        (u64::from(start.as_secs()), end)
    });
    LostPoints { metrics: Some(metrics), time }
}
