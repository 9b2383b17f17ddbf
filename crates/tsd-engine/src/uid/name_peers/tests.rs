//! Engines over one store, as the nodes of a cluster are.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use super::*;
use crate::{
    EngineHandle, UidError, WeakEngineHandle,
    testing::{TestStore, config, put_one, start, store},
};

/// The engines that a node sees, each at its number.
#[derive(Debug, Default)]
struct EngineLinks {
    engines: OnceLock<Vec<WeakEngineHandle>>,
    /// No node answers another one.
    is_cut: AtomicBool,
}

/// The other nodes, as that of this number sees them.
#[derive(Debug)]
struct LinkedPeers {
    this: usize,
    links: Arc<EngineLinks>,
}

impl LinkedPeers {
    fn engine(&self, number: usize) -> Option<EngineHandle> {
        let is_cut = self.links.is_cut.load(Ordering::Relaxed);
        let engine = self.links.engines.get()?.get(number)?.upgrade();
        engine.filter(|_| !is_cut)
    }
}

impl NamePeers for LinkedPeers {
    fn forget(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
        uids: Vec<Uid>,
    ) -> BoxFuture<'_, Result<(), String>> {
        let numbers = 0..self.links.engines.get().unwrap().len();
        let forget = |number: usize| match self.engine(number) {
            Some(engine) => {
                engine.forget_names(kind, &names, &uids);
                Ok(())
            }
            None => Err(format!("node {number} does not answer")),
        };
        let forgotten = numbers.filter(|number| *number != self.this).try_for_each(forget);
        Box::pin(async { forgotten })
    }
}

/// Engines that know each other.
fn nodes<const N: usize>(store: &Arc<TestStore>) -> ([EngineHandle; N], Arc<EngineLinks>) {
    let links = Arc::<EngineLinks>::default();
    let nodes = std::array::from_fn(|this| {
        let mut settings = config();
        let links = Arc::clone(&links);
        settings.name_peers = Some(Arc::new(LinkedPeers { this, links }));
        start(settings, store)
    });
    links.engines.set(nodes.iter().map(EngineHandle::downgrade).collect()).unwrap();
    (nodes, links)
}

async fn number(engine: &EngineHandle, name: &str) -> Option<u64> {
    engine.uids().uid_of(UidKind::Tagv, name).await.ok().map(Uid::to_number)
}

#[tokio::test]
async fn renamed_and_deleted_names_are_forgotten_by_all_nodes() {
    let store = store();
    let ([first, second], _) = nodes(&store);
    for node in [&first, &second] {
        put_one(node, "m", "host=old", 1, 1).await.unwrap();
        assert_eq!(number(node, "old").await, Some(1));
    }
    first.rename_uid(UidKind::Tagv, "old", "new").await.unwrap();
    assert_eq!((number(&second, "old").await, number(&second, "new").await), (None, Some(1)));
    let uid = Uid::from_number(1, 3).unwrap();
    assert_eq!(second.uids().name_of(UidKind::Tagv, uid).await.unwrap(), "new");
    // The series of the same bytes is another one now.
    put_one(&second, "m", "host=old", 1, 1).await.unwrap();
    assert_eq!(number(&second, "old").await, Some(2));

    second.delete_uid(UidKind::Tagv, "new").await.unwrap();
    assert_eq!(number(&first, "new").await, None);
    assert!(first.uids().name_of(UidKind::Tagv, uid).await.is_err());
    put_one(&first, "m", "host=new", 1, 1).await.unwrap();
    assert_eq!(number(&first, "new").await, Some(3));
}

#[tokio::test]
async fn a_change_that_a_node_has_not_confirmed_is_made_and_says_so() {
    let store = store();
    let ([first, second], links) = nodes(&store);
    put_one(&first, "m", "host=old", 1, 1).await.unwrap();
    links.is_cut.store(true, Ordering::Relaxed);
    let error = first.rename_uid(UidKind::Tagv, "old", "new").await.unwrap_err();
    assert!(matches!(error, UidError::NotForgotten { .. }), "{error}");
    let text = error.to_string();
    for part in ["'old' is changed", "node 1 does not answer", "/api/dropcaches"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(number(&second, "new").await, Some(1));
    let error = first.delete_uid(UidKind::Tagv, "new").await.unwrap_err();
    assert!(error.to_string().contains("'new' is changed"), "{error}");
    assert_eq!(number(&first, "new").await, None);
}
