//! Repairs on one node of a cluster: the other node forgets the mappings as they were.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use tsd_engine::{
    EngineHandle, NamePeers, UidTable, UnconfirmedRemovalError,
    testing::{config, put_one, start, store},
};
use tsd_model::{Uid, UidKind};
use tsd_storage::{BoxFuture, CellBatch, CellRef, StorageExt};

use crate::{FsckLevel, UidFsckOptions, uid_fsck};

/// The other node of a cluster of two. It owns no names.
#[derive(Debug, Default)]
struct OtherNode {
    engine: OnceLock<EngineHandle>,
    /// True if it does not answer.
    is_cut: AtomicBool,
}

impl NamePeers for OtherNode {
    fn has_other_owner(&self, _: UidKind, _: &[u8]) -> bool {
        false
    }

    fn assign(&self, _: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>> {
        Box::pin(async move { vec![None; names.len()] })
    }

    fn forget(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
        uids: Vec<Uid>,
    ) -> BoxFuture<'_, Result<(), UnconfirmedRemovalError>> {
        let forgotten = if self.is_cut.load(Ordering::Relaxed) {
            Err(UnconfirmedRemovalError("node 1 does not answer".to_owned()))
        } else {
            self.engine.get().unwrap().forget_names(kind, &names, &uids);
            Ok(())
        };
        Box::pin(async { forgotten })
    }
}

async fn number(engine: &EngineHandle, name: &str) -> Option<u64> {
    engine.uids().uid_of(UidKind::Tagv, name).await.ok().map(Uid::to_number)
}

#[tokio::test]
async fn repaired_names_are_forgotten_by_all_nodes() {
    let store = store();
    let peer = Arc::<OtherNode>::default();
    let mut settings = config();
    settings.name_peers = Some(Arc::<OtherNode>::clone(&peer));
    let (first, second) = (start(settings, &store), start(config(), &store));
    peer.engine.set(second.clone()).unwrap();
    put_one(&second, "m", "host=a", 1, 1).await.unwrap();
    put_one(&second, "m", "host=b", 1, 1).await.unwrap();
    // The second name gets the UID of the first, so their points are mixed.
    let (shared, freed) = (Uid::from_number(1, 3).unwrap(), Uid::from_number(2, 3).unwrap());
    let table = second.config().tables.uid.clone();
    let take_over = async |name: &'static str| {
        let column = UidTable::forward(UidKind::Tagv, name.as_bytes());
        let value = shared.as_bytes();
        let cell = CellRef {
            family: column.family,
            qualifier: &column.qualifier,
            value,
            timestamp_ms: None,
        };
        store.put(&table, CellBatch::single(&column.row, cell).unwrap()).await.unwrap();
    };
    take_over("b").await;
    second.forget_names(UidKind::Tagv, &["b".into()], &[freed]);
    assert_eq!((number(&second, "a").await, number(&second, "b").await), (Some(1), Some(1)));

    let options = UidFsckOptions { fix: true, delete_unknown: false };
    let report = uid_fsck(&first, options, &mut |_: FsckLevel, _: &str| {}).await.unwrap();
    assert!(report.repairs > 0 && !report.has_failed_repair, "{report:?}");
    assert_eq!((number(&second, "a").await, number(&second, "b").await), (Some(1), None));
    assert_eq!(second.uids().name_of(UidKind::Tagv, shared).await.unwrap(), "a");

    take_over("c").await;
    peer.is_cut.store(true, Ordering::Relaxed);
    let mut lines = Vec::new();
    let mut found = |_: FsckLevel, text: &str| lines.push(text.to_owned());
    let report = uid_fsck(&first, options, &mut found).await.unwrap();
    assert!(report.has_failed_repair);
    let names_node =
        |line: &String| line.contains("node 1 does not answer") && line.contains("/api/dropcaches");
    assert!(lines.iter().any(names_node), "{lines:?}");
}
