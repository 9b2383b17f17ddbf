//! Looks every few seconds whether tables are disabled or missing. A log holds rows for a minute, so their flush would
//! show it late.

use std::{sync::Weak, time::Duration};

use hbase_rs::admin::TableState;
use tokio::time::sleep;
use tsd_storage::{HealthImpact, HealthProblem, StoreComponent, Table};

use crate::context::StoreContext;

/// Pause between two looks at all tables. A look is one call to the server of hbase:meta a table.
const PAUSE: Duration = Duration::from_secs(3);
/// Timeout of a look at a table.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs until the store is closed.
pub(crate) async fn run(of: Weak<StoreContext>, tables: Vec<Table>) {
    loop {
        for table in &tables {
            let Some(context) = of.upgrade().filter(|context| context.check_open().is_ok()) else {
                return;
            };
            // An unavailable hbase:meta says nothing about the table.
            let Ok(opened) = context.table(table) else { continue };
            if let Ok(state) = opened.rows.clone().with_timeout(TIMEOUT).state().await {
                context.set_unusable(table, cause(state));
            }
        }
        sleep(PAUSE).await;
    }
}

/// Why a table in this state cannot be used, as a predicate; `None` if it can.
const fn cause(state: Option<TableState>) -> Option<&'static str> {
    match state {
        None => Some("does not exist"),
        Some(TableState::Disabled | TableState::Disabling) => Some("is disabled"),
        Some(TableState::Enabled | TableState::Enabling) => None,
    }
}

/// The problem of a table that cannot be used.
pub(crate) fn problem(table: &Table, cause: &str) -> HealthProblem {
    let text = format!("table {table} {cause} in HBase: its rows can be neither stored nor read");
    HealthProblem::new(StoreComponent::Backend, HealthImpact::Degraded, text)
}
