#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod damage;
mod fixture;
mod memory_model;
mod packed_rows;
mod reclaim;
mod recovery;
mod series;
mod size;

use std::sync::Arc;

use tsd_storage::conformance;

use self::fixture::{new_dir, open};
use crate::TableSpec;

#[tokio::test]
async fn points_layout_passes_the_suite() {
    check_conformance(|tables| tables.map(TableSpec::points).to_vec()).await;
}

#[tokio::test]
async fn cells_layout_passes_the_suite() {
    check_conformance(|tables| tables.map(TableSpec::cells).to_vec()).await;
}

async fn check_conformance(specs: impl Fn([tsd_storage::Table; 2]) -> Vec<TableSpec>) {
    let dirs = std::sync::Mutex::new(Vec::new());
    conformance::run_all(async || {
        let dir = new_dir();
        let store = Arc::new(open(&dir, specs(conformance::tables())));
        dirs.lock().unwrap().push(dir);
        store
    })
    .await;
}
