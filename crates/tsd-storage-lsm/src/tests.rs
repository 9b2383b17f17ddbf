#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod against_memory;
mod kit;
mod reopening;
mod size;
mod whole_rows;

use std::sync::Arc;

use tsd_storage::conformance;

use self::kit::{new_dir, open};
use crate::TableSpec;

#[tokio::test]
async fn a_store_of_points_passes_the_suite() {
    passes(|tables| tables.map(TableSpec::points).to_vec()).await;
}

#[tokio::test]
async fn a_store_of_cells_passes_the_suite() {
    passes(|tables| tables.map(TableSpec::cells).to_vec()).await;
}

async fn passes(specs: impl Fn([tsd_storage::Table; 2]) -> Vec<TableSpec>) {
    let dirs = std::sync::Mutex::new(Vec::new());
    conformance::run_all(async || {
        let dir = new_dir();
        let store = Arc::new(open(&dir, specs(conformance::tables())));
        dirs.lock().unwrap().push(dir);
        store
    })
    .await;
}
