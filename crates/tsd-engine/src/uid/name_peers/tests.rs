//! Several engines over one store, like the nodes of a cluster.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use super::*;
use tsd_meta::UidError;

use crate::{
    EngineConfig, EngineHandle, NameText, WeakEngineHandle,
    testing::{TestStore, cells, config, put, put_one, start, store},
    uid::tests::checked_names,
};

/// The engines that a node sees, each at its number.
#[derive(Debug, Default)]
struct EngineLinks {
    engines: OnceLock<Vec<WeakEngineHandle>>,
    /// True if no node answers another one.
    is_cut: AtomicBool,
    /// Number of names requested from other nodes.
    asked: AtomicUsize,
}

/// The other nodes, as the node of this number sees them.
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

impl LinkedPeers {
    /// The node that owns a name.
    fn owner(&self, name: &[u8]) -> usize {
        let sum: usize = name.iter().map(|byte| usize::from(*byte)).sum();
        sum % self.links.engines.get().map_or(1, Vec::len)
    }
}

impl NamePeers for LinkedPeers {
    fn has_other_owner(&self, _: UidKind, name: &[u8]) -> bool {
        self.owner(name) != self.this
    }

    fn assign(&self, kind: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>> {
        self.links.asked.fetch_add(names.len(), Ordering::Relaxed);
        Box::pin(async move {
            let mut uids = Vec::new();
            for name in names {
                uids.extend(match self.engine(self.owner(&name)) {
                    Some(engine) => engine.assign_for_peer(kind, vec![name]).await,
                    None => vec![None],
                });
            }
            uids
        })
    }

    fn forget(
        &self,
        kind: UidKind,
        names: Vec<Bytes>,
        uids: Vec<Uid>,
    ) -> BoxFuture<'_, Result<(), UnconfirmedRemovalError>> {
        let numbers = 0..self.links.engines.get().unwrap().len();
        let forget = |number: usize| match self.engine(number) {
            Some(engine) => {
                engine.forget_names(kind, &names, &uids);
                Ok(())
            }
            None => Err(UnconfirmedRemovalError(format!("node {number} does not answer"))),
        };
        let forgotten = numbers.filter(|number| *number != self.this).try_for_each(forget);
        Box::pin(async { forgotten })
    }
}

/// Engines that know each other.
fn nodes<const N: usize>(store: &Arc<TestStore>) -> ([EngineHandle; N], Arc<EngineLinks>) {
    nodes_with(store, |_| {})
}

fn nodes_with<const N: usize>(
    store: &Arc<TestStore>,
    set: impl Fn(&mut EngineConfig),
) -> ([EngineHandle; N], Arc<EngineLinks>) {
    let links = Arc::<EngineLinks>::default();
    let nodes = std::array::from_fn(|this| {
        let mut settings = config();
        set(&mut settings);
        let links = Arc::clone(&links);
        settings.name_peers = Some(Arc::new(LinkedPeers { this, links }));
        start(settings, store)
    });
    links.engines.set(nodes.iter().map(EngineHandle::downgrade).collect()).unwrap();
    (nodes, links)
}

async fn data_cells(store: &TestStore) -> usize {
    cells(store, &EngineConfig::default().tables.data).await.len()
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
    // The series of the same bytes has other UIDs now.
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

/// Puts a point of each of `hosts` series to every node at once. Each node begins with another series.
async fn put_to_all(nodes: &[EngineHandle], hosts: usize) {
    let mut joined = JoinSet::new();
    for (number, node) in nodes.iter().enumerate() {
        let node = node.clone();
        joined.spawn(async move {
            let mut session = node.ingest_session(NameText::Latin1);
            for part in 0..10 {
                for i in 0..hosts / 10 {
                    let host = (part * (hosts / 10) + i + number * 37) % hosts;
                    let tags = format!("host=web{host} cpu={}", host % 7);
                    put(&mut session, &format!("m.{}", host % 50), &tags, 1_356_998_400, 1, 0)
                        .unwrap();
                }
                let report = session.commit().await;
                assert_eq!(report.stored, hosts / 10, "{:?}", report.failures.first());
            }
        });
    }
    joined.join_all().await;
}

/// Nodes whose clients never run out of time.
fn patient_nodes<const N: usize>(store: &Arc<TestStore>) -> ([EngineHandle; N], Arc<EngineLinks>) {
    nodes_with(store, |settings| {
        settings.ingest.queue_deadline = Duration::from_mins(10);
        settings.ingest.store_deadline = Duration::from_mins(10);
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn names_that_are_new_to_all_nodes_at_once_take_one_number_each() {
    let store = store();
    let (nodes, links) = patient_nodes::<3>(&store);
    put_to_all(&nodes, 3_000).await;
    // Also checks that no number is unused.
    let names = checked_names(&store).await;
    assert_eq!(names.len(), 50 + 2 + 3_000 + 7);
    assert!(links.asked.load(Ordering::Relaxed) > 3_000);
    for host in [0, 1_499, 2_999] {
        let [first, others @ ..] = &nodes;
        let name = format!("web{host}");
        let expected = number(first, &name).await;
        assert!(expected.is_some());
        for other in others {
            assert_eq!(number(other, &name).await, expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_whose_owners_do_not_answer_assigns_by_itself() {
    let store = store();
    let (nodes, links) = patient_nodes::<3>(&store);
    links.is_cut.store(true, Ordering::Relaxed);
    put_to_all(&nodes, 300).await;
    let uids = |name: String| {
        let nodes = &nodes;
        async move {
            let mut uids = Vec::new();
            for node in nodes {
                uids.push(number(node, &name).await.unwrap());
            }
            uids
        }
    };
    for host in 0..300 {
        let uids = uids(format!("web{host}")).await;
        assert!(uids.windows(2).all(|pair| pair.first() == pair.last()), "{host}: {uids:?}");
    }
    assert_eq!(data_cells(&store).await, 300, "one series each");
}

#[tokio::test]
async fn what_a_node_may_not_create_is_not_asked_of_another_one() {
    let store = store();
    let ([first, ..], links) = nodes_with::<3>(&store, |settings| {
        settings.uids.auto_create_tagvs = false;
    });
    for host in 0..10 {
        put_one(&first, "m", &format!("host={host}"), 1, 1).await.unwrap_err();
    }
    let tagvs: usize =
        checked_names(&store).await.keys().filter(|(kind, _)| kind == "tagv").count();
    assert_eq!(tagvs, 0);
    // At most the metric and the tag key.
    assert!(links.asked.load(Ordering::Relaxed) <= 2);
}
