//! Compares the settings of this node with those of the cluster, which the first node has stored.

use tokio::time::Instant;
use tsd_cluster::{SharedSettings, TableReply};
use tsd_storage::StorageError;

use crate::{
    calls::{CallFailure, LogTable, SETTINGS},
    error::OpenLogError,
};

/// Fails if a setting differs. Settings that the cluster lacks are stored.
pub(crate) async fn check(
    table: &LogTable,
    own: &SharedSettings,
    deadline: Instant,
) -> Result<(), OpenLogError> {
    loop {
        let text = match attempt(table, own).await {
            Ok(Ok(true)) => return Ok(()),
            Ok(Ok(false)) => String::from("other nodes change the settings"),
            Ok(Err(error)) => return Err(error),
            Err(CallFailure::Fail(error)) => return Err(error.into()),
            Err(CallFailure::Repeat(text)) => text,
        };
        if Instant::now() >= deadline {
            return Err(table.unavailable(&text).into());
        }
    }
}

/// Returns false if another node was first.
async fn attempt(
    table: &LogTable,
    own: &SharedSettings,
) -> Result<Result<bool, OpenLogError>, CallFailure> {
    let stored = table.state_cell(SETTINGS).await?;
    let of_cluster = match stored.as_deref().map(SharedSettings::decode) {
        None => SharedSettings::default(),
        Some(Some(found)) => found,
        Some(None) => {
            let text = "the settings of the cluster are of another version";
            return Err(CallFailure::Fail(StorageError::Damaged(text.into())));
        }
    };
    let differences = own.differences(&of_cluster);
    if !differences.is_empty() {
        return Ok(Err(OpenLogError::Settings(differences)));
    }
    let all = of_cluster.with_missing(own);
    if all == of_cluster {
        return Ok(Ok(true));
    }
    let new = (all.count() as u64, &*all.encode());
    let reply = table.swap_state_cell(SETTINGS, stored, new).await?;
    Ok(Ok(reply == TableReply::Applied(true)))
}
