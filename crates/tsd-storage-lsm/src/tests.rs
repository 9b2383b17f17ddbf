#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod damage;
mod fixture;
mod memory_model;
mod reclaim;
mod recovery;
mod unknown_version;

use std::sync::Arc;

use tsd_storage::conformance;

use self::fixture::{new_dir, open};

#[tokio::test]
async fn passes_the_conformance_suite() {
    let dirs = std::sync::Mutex::new(Vec::new());
    conformance::run_all(async || {
        let dir = new_dir();
        let store = Arc::new(open(&dir, conformance::tables().to_vec()));
        dirs.lock().unwrap().push(dir);
        store
    })
    .await;
}
