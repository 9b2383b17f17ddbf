//! State and files of stores.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use super::fixture::{data, put};
use crate::{Storage, StorageError};

pub(super) async fn undamaged_store_reports_no_problems(store: Arc<dyn Storage>) {
    put(&*store, b"row", &[(b"q", b"v")]).await;
    store.flush().await.unwrap();
    assert_eq!(store.maintenance().health(), []);
    let quarantine = store.maintenance().quarantine();
    assert!(quarantine.is_none_or(|quarantine| quarantine.files().is_empty()));
    // Whether merges compact rows is a property of the table, not of its contents.
    let compacts = store.maintenance().compacts_rows(&data());
    put(&*store, b"other", &[(b"q", b"v")]).await;
    assert_eq!(store.maintenance().compacts_rows(&data()), compacts);
}

pub(super) async fn names_of_gauges_are_different(store: Arc<dyn Storage>) {
    put(&*store, b"row", &[(b"q", b"v")]).await;
    let gauges = store.maintenance().gauges();
    assert_different(gauges.iter().map(|(name, _)| *name));
    for (name, value) in gauges {
        assert!(name.starts_with("tsd_") && value.is_finite(), "{name} {value}");
    }
}

pub(super) async fn pinned_files_have_different_paths(store: Arc<dyn Storage>) {
    put(&*store, b"row", &[(b"q", b"v")]).await;
    match store.maintenance().pin_files().await {
        Ok(pinned) => {
            assert_different(pinned.files.iter().map(|file| &file.path));
            assert!(pinned.damaged.is_empty(), "{:?}", pinned.damaged);
        }
        // The store takes no snapshots.
        Err(error) => assert!(matches!(error, StorageError::Rejected(_)), "{error}"),
    }
}

fn assert_different<T: Ord + Debug>(names: impl Iterator<Item = T>) {
    let mut found = BTreeSet::new();
    for name in names {
        assert!(!found.contains(&name), "{name:?} is twice there");
        found.insert(name);
    }
}
