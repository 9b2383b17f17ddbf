//! Checks the attributes of the log table after a start without HBase's master.

use std::{sync::Weak, time::Duration};

use hbase_rs::{Client, admin::TableDescriptor};
use tokio::time::{Instant, sleep};

use crate::{
    calls::LogTable,
    config::ClusterLogConfig,
    error::OpenLogError,
    identity,
    log::LogInner,
    log_table::{checked, describe, other_identity},
};

/// Timeout of an attempt.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_secs(2);

/// Repeats the check until the attributes are right, or the log is over. Wrong attributes are a problem of the log
/// meanwhile.
pub(crate) async fn run(client: Client, log: Weak<LogInner>) {
    let Some((table, config)) = log.upgrade().map(|log| (log.table.clone(), log.config.clone()))
    else {
        return;
    };
    loop {
        let described = describe(&client, table.table.name(), Instant::now() + ATTEMPT).await;
        let result = match described {
            Ok(Some(found)) => Some(check(&table, &config, &found).await),
            // A missing table is detected elsewhere.
            Ok(None) | Err(_) => None,
        };
        let Some(inner) = log.upgrade().filter(|inner| !inner.is_over()) else { return };
        match result {
            Some(Ok(())) => {
                inner.condition.set_attribute_problem(None);
                tracing::info!(log = inner.name(), "the attributes of the log table are right");
                return;
            }
            Some(Err(error @ OpenLogError::Table { .. })) => {
                if inner.condition.set_attribute_problem(Some(error.to_string())) {
                    tracing::error!("{error}");
                }
            }
            Some(Err(_)) | None => {}
        }
        drop(inner);
        sleep(PAUSE).await;
    }
}

async fn check(
    table: &LogTable,
    config: &ClusterLogConfig,
    found: &TableDescriptor,
) -> Result<(), OpenLogError> {
    let keys = checked(config, found)?;
    let recorded = identity::record(&table.table, keys, Instant::now() + ATTEMPT).await?;
    recorded.map(|_| ()).ok_or_else(|| other_identity(config))
}
