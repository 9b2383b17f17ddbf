//! Damaged files that the store has quarantined, with what was lost in terms of metrics and times.

use std::sync::Arc;

use bytes::Bytes;
use tsd_model::{BaseTime, RowKey, Uid, UidKind};
use tsd_storage::{LostRows, QuarantinedFile, StorageError};

use crate::{EngineHandle, engine_shared::EngineShared};

/// Most metrics that are listed of one range.
const MAX_LISTED_METRICS: u64 = 100;

/// A damaged file in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedPart {
    /// The file and the lost rows.
    pub file: QuarantinedFile,
    /// What each of the ranges of lost rows contains, in the order of `file.lost`.
    pub lost: Vec<LostPoints>,
}

/// What a range of rows contains, as far as its keys tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostPoints {
    /// Metrics that may have lost points, by name, or by UID if they have none; `None` if any may.
    pub metrics: Option<Vec<String>>,
    /// Epoch seconds of the first and the end of the last hour, if they are known.
    pub time: Option<(u64, u64)>,
}

impl EngineHandle {
    /// The damaged files that the store has quarantined and whose loss was not accepted yet.
    pub async fn quarantine(&self) -> Vec<QuarantinedPart> {
        let shared = self.shared();
        let Some(quarantine) = shared.storage.quarantine() else { return Vec::new() };
        let mut parts = Vec::new();
        let files = tokio::task::spawn_blocking(move || quarantine.files()).await;
        // A panic ends the task only: it was reported.
        for file in files.unwrap_or_default() {
            let mut lost = Vec::with_capacity(file.lost.len());
            for rows in &file.lost {
                lost.push(lost_points(shared, &file, rows).await);
            }
            parts.push(QuarantinedPart { file, lost });
        }
        parts
    }

    /// Accepts the loss of a file in quarantine: from then on reads return what is left. Returns
    /// false if there is no such file.
    pub async fn accept_loss(&self, name: &str) -> Result<bool, StorageError> {
        let Some(quarantine) = self.shared().storage.quarantine() else { return Ok(false) };
        let name = name.to_owned();
        let accepted = tokio::task::spawn_blocking(move || quarantine.accept(&name)).await;
        let accepted = accepted.unwrap_or(Err(StorageError::Closed))?;
        // Names may be gone.
        self.drop_caches();
        Ok(accepted)
    }
}

async fn lost_points(
    shared: &Arc<EngineShared>,
    file: &QuarantinedFile,
    rows: &LostRows,
) -> LostPoints {
    if rows.time_secs.is_some() {
        return LostPoints { metrics: None, time: rows.time_secs };
    }
    let config = &shared.config;
    let mut series_tables = config.rollups.iter().flat_map(crate::Rollups::tables);
    if file.table != config.tables.data && !series_tables.any(|table| table == file.table) {
        return LostPoints::default();
    }
    let decode = |key: &Option<Bytes>| {
        let key = RowKey::decode(&config.schema, key.as_ref()?).ok()?;
        let metric = Uid::try_new(key.metric()).ok()?;
        Some((key.salt().to_vec(), metric, key.base_time()))
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
    // The names may be in quarantine, too.
    let names = shared.uids.names_of(UidKind::Metric, &uids).await;
    let names = names.unwrap_or_else(|_| vec![None; uids.len()]);
    let metrics = uids
        .iter()
        .zip(names)
        // A number between the two without a name is of no metric.
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
