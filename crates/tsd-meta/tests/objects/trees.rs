#![expect(clippy::unwrap_used, reason = "tests")]

use std::{sync::Arc, time::Duration};

use tsd_engine::{
    Engine, EngineConfig, EngineHandle, MetaTracking, StartError,
    testing::{ManualClock, TestStore, cells, config, put_one, start, store},
};
use tsd_meta::{RuleEditOutcome, TestedSeries, TreeEditOutcome, TreeError, TreeFailureKind};
use tsd_model::{
    Family, Tree, TreeEdit, TreeId, TreeRuleEdit, TreeRuleKind, UidKind, UidMetaEdit, to_hex,
};
use tsd_storage::{CellBatch, CellRef, Fault, Operation, StorageError, StorageExt, Table};

const TABLE: &str = "tsdb-tree";

fn processing() -> EngineConfig {
    EngineConfig {
        meta_tracking: MetaTracking::Describe,
        tree_processing: true,
        clock: ManualClock::at_secs(1_356_998_400),
        ..config()
    }
}

fn id(number: u16) -> TreeId {
    TreeId::try_new(number).unwrap()
}

fn named(name: &str) -> TreeEdit {
    TreeEdit { name: Some(name.to_owned()), ..TreeEdit::default() }
}

fn enabled() -> TreeEdit {
    TreeEdit { enabled: Some(true), store_failures: Some(true), ..TreeEdit::default() }
}

fn rule(level: i64, kind: TreeRuleKind, field: &str) -> TreeRuleEdit {
    TreeRuleEdit {
        tree_id: 1,
        level,
        kind: Some(kind),
        field: Some(field.to_owned()),
        ..TreeRuleEdit::default()
    }
}

/// An enabled tree of tags and the metric.
async fn create(engine: &EngineHandle, tags: &[&str]) -> TreeId {
    let trees = engine.trees();
    let Tree { id, .. } = trees.create(&named("T"), 0).await.unwrap();
    let tree_id = i64::from(id.number());
    for (tag, level) in tags.iter().zip(0..) {
        let edit = TreeRuleEdit { tree_id, ..rule(level, TreeRuleKind::Tagk, tag) };
        trees.edit_rule(id, &edit, false).await.unwrap();
    }
    let level = i64::try_from(tags.len()).unwrap();
    let metric = TreeRuleEdit {
        tree_id,
        separator: Some(r"\.".to_owned()),
        ..rule(level, TreeRuleKind::Metric, "")
    };
    trees.edit_rule(id, &metric, false).await.unwrap();
    trees.edit(id, &enabled(), false).await.unwrap();
    id
}

async fn put(engine: &EngineHandle, metric: &str, tags: &str) {
    put_one(engine, metric, tags, 1_356_998_400, 1).await.unwrap();
}

/// Waits until the series of all earlier points are placed.
async fn drain(engine: &EngineHandle) {
    engine.drain_tracking().await;
}

/// Branches, leaves and failures of the tree table, without definitions and rules.
async fn dump(store: &TestStore) -> Vec<String> {
    let table = Table::new(TABLE);
    let mut lines = Vec::new();
    for (row, cell) in cells(store, &table).await {
        let qualifier = String::from_utf8_lossy(&cell.qualifier).into_owned();
        if !qualifier.starts_with("tree_rule") && qualifier != "tree" {
            let name = qualifier.split(':').next().unwrap().to_owned();
            let value = String::from_utf8_lossy(&cell.value).into_owned();
            lines.push(format!("{} {name} {value}", to_hex(&row)));
        }
    }
    lines
}

fn leaves(dump: &[String]) -> Vec<&str> {
    dump.iter().filter(|line| line.contains(" leaf ")).map(String::as_str).collect()
}

#[tokio::test]
async fn trees_are_numbered_after_the_highest_one() {
    let store = store();
    let engine = start(config(), &store);
    let trees = engine.trees();
    assert_eq!(trees.all().await.unwrap(), []);
    assert_eq!(trees.create(&named("a"), 5).await.unwrap().id, id(1));
    let far = CellRef {
        family: Family::T,
        qualifier: b"tree",
        value: b"{\"name\":\"f\"}",
        timestamp_ms: None,
    };
    let batch = CellBatch::single(&[1, 0], far).unwrap();
    store.put(&Table::new(TABLE), batch).await.unwrap();
    assert_eq!(trees.create(&named("b"), 5).await.unwrap().id, id(257));
    let all = trees.all().await.unwrap();
    let numbers: Vec<u16> = all.iter().map(|tree| tree.id.number()).collect();
    assert_eq!(numbers, [1, 256, 257]);
    assert_eq!(all.first().unwrap().definition.created, 5);
    let last = CellBatch::single(&[255, 255], far).unwrap();
    store.put(&Table::new(TABLE), last).await.unwrap();
    let error = trees.create(&named("c"), 5).await.unwrap_err();
    assert_eq!(error.to_string(), "Exhausted all Tree IDs");
    assert!(matches!(trees.create(&TreeEdit::default(), 0).await, Err(TreeError::NoName)));
}

#[tokio::test]
async fn concurrent_creations_get_numbers_of_their_own() {
    let engine = start(config(), &store());
    let created = (0..8).map(|_| async { engine.trees().create(&named("T"), 0).await.unwrap().id });
    let mut numbers: Vec<u16> =
        futures_util::future::join_all(created).await.into_iter().map(TreeId::number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=8).collect::<Vec<u16>>());
}

#[tokio::test]
async fn edits_need_a_tree_and_a_change() {
    let engine = start(config(), &store());
    let trees = engine.trees();
    let metric = rule(0, TreeRuleKind::Metric, "");
    assert_eq!(trees.edit(id(1), &named("a"), false).await.unwrap(), TreeEditOutcome::NotFound);
    assert_eq!(trees.edit_rule(id(1), &metric, false).await.unwrap(), RuleEditOutcome::NotFound);
    assert!(!trees.edit_rules(id(1), std::slice::from_ref(&metric), false).await.unwrap());
    trees.create(&named("a"), 0).await.unwrap();
    let unchanged = trees.edit(id(1), &TreeEdit::default(), true).await.unwrap();
    assert_eq!(unchanged, TreeEditOutcome::Unchanged);
    assert!(matches!(trees.edit_rule(id(1), &metric, false).await, Ok(RuleEditOutcome::Stored(_))));
    let again = trees.edit_rule(id(1), &metric, false).await.unwrap();
    assert_eq!(again, RuleEditOutcome::Unchanged);
    let negative = TreeRuleEdit { order: -1, ..metric };
    let error = trees.edit_rule(id(1), &negative, false).await.unwrap_err();
    assert_eq!(error.to_string(), "Invalid rule order");
}

#[tokio::test]
async fn rules_in_bulk_are_checked_before_any_is_stored() {
    let engine = start(config(), &store());
    let trees = engine.trees();
    trees.create(&named("a"), 0).await.unwrap();
    let metric = rule(0, TreeRuleKind::Metric, "");
    let host = rule(1, TreeRuleKind::Tagk, "host");
    let invalid = rule(2, TreeRuleKind::Tagk, "");
    for replace in [false, true] {
        let edits = [metric.clone(), invalid.clone()];
        assert!(matches!(trees.edit_rules(id(1), &edits, replace).await, Err(TreeError::Rule(_))));
        assert_eq!(trees.get(id(1)).await.unwrap().unwrap().rules.len(), usize::from(replace));
        if !replace {
            assert!(trees.edit_rules(id(1), std::slice::from_ref(&metric), false).await.unwrap());
        }
    }
    // The same rule again, and another one.
    assert!(trees.edit_rules(id(1), &[metric, host.clone()], false).await.unwrap());
    assert_eq!(trees.get(id(1)).await.unwrap().unwrap().rules.len(), 2);
    assert!(trees.edit_rules(id(1), &[host], true).await.unwrap());
    let rules = trees.get(id(1)).await.unwrap().unwrap().rules;
    assert_eq!(rules.into_keys().collect::<Vec<_>>(), [(1, 0)]);
    assert!(trees.delete_rules(id(1)).await.unwrap());
    assert_eq!(trees.get(id(1)).await.unwrap().unwrap().rules.len(), 0);
}

#[tokio::test]
async fn new_series_are_placed_and_collisions_recorded() {
    let store = store();
    let engine = start(processing(), &store);
    create(&engine, &["dc", "host"]).await;
    put(&engine, "sys.cpu", "dc=dal host=a").await;
    put(&engine, "sys.mem", "dc=dal host=a").await;
    put(&engine, "sys.cpu", "dc=dal host=a rack=r").await;
    drain(&engine).await;
    let sys = "00010001838F000000610001BECD";
    assert_eq!(
        dump(&store).await,
        [
            "0001 branch {\"path\":{\"0\":\"ROOT\"},\"displayName\":\"ROOT\"}".to_owned(),
            "00010001838F branch {\"path\":{\"0\":\"ROOT\",\"1\":\"dal\"},\"displayName\":\"dal\"}"
                .to_owned(),
            "00010001838F00000061 branch {\"path\":{\"0\":\"ROOT\",\"1\":\"dal\",\"2\":\"a\"},\
             \"displayName\":\"a\"}"
                .to_owned(),
            format!(
                "{sys} branch {{\"path\":{{\"0\":\"ROOT\",\"1\":\"dal\",\"2\":\"a\",\"3\":\"sys\"}},\
                 \"displayName\":\"sys\"}}"
            ),
            format!(
                "{sys} leaf {{\"displayName\":\"cpu\",\"tsuid\":\"000001000001000001000002000002\"}}"
            ),
            format!(
                "{sys} leaf {{\"displayName\":\"mem\",\"tsuid\":\"000002000001000001000002000002\"}}"
            ),
            "000101 tree_collision 000001000001000001000002000002".to_owned(),
        ]
    );
    let collisions = engine.trees().failures(id(1), TreeFailureKind::Collision, &[]).await.unwrap();
    let third = "000001000001000001000002000002000003000003".to_owned();
    let owner = "000001000001000001000002000002".to_owned();
    assert_eq!(collisions, [(third, owner)]);
    let other = engine.trees().failures(id(1), TreeFailureKind::Collision, &[vec![1]]).await;
    assert_eq!(other.unwrap(), []);
}

#[tokio::test]
async fn strict_trees_record_what_does_not_match() {
    let store = store();
    let engine = start(processing(), &store);
    create(&engine, &["dc", "host"]).await;
    let strict = TreeEdit { strict_match: Some(true), ..TreeEdit::default() };
    engine.trees().edit(id(1), &strict, false).await.unwrap();
    put(&engine, "m", "rack=r").await;
    drain(&engine).await;
    let missed = engine.trees().failures(id(1), TreeFailureKind::NotMatched, &[]).await.unwrap();
    assert_eq!(missed, [("000001000001000001".to_owned(), "[1:0:0:TAGK] [1:1:0:TAGK]".to_owned())]);
    assert_eq!(leaves(&dump(&store).await), [""; 0]);
}

#[tokio::test]
async fn edited_rules_apply_to_the_next_series_at_once() {
    let store = store();
    let engine = start(processing(), &store);
    create(&engine, &["dc"]).await;
    put(&engine, "m", "dc=a host=h").await;
    drain(&engine).await;
    let host = rule(0, TreeRuleKind::Tagk, "host");
    engine.trees().edit_rule(id(1), &host, false).await.unwrap();
    put(&engine, "n", "dc=a host=h").await;
    drain(&engine).await;
    let disabled = TreeEdit { enabled: Some(false), ..TreeEdit::default() };
    engine.trees().edit(id(1), &disabled, false).await.unwrap();
    put(&engine, "o", "dc=a host=h").await;
    drain(&engine).await;
    let dump = dump(&store).await;
    let rows: Vec<&str> =
        leaves(&dump).iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(rows, ["000100000061", "000100000068"]);
}

#[tokio::test]
async fn custom_fields_are_those_of_the_uid_meta() {
    let store = store();
    let engine = start(processing(), &store);
    put(&engine, "x", "host=web01").await;
    let owner = UidMetaEdit {
        custom: Some(vec![("owner".to_owned(), Some("ops".to_owned()))]),
        ..UidMetaEdit::default()
    };
    let meta = engine.meta_objects();
    meta.edit_uid_meta(UidKind::Metric, &[0, 0, 1], &owner, false).await.unwrap();
    let trees = engine.trees();
    trees.create(&named("T"), 0).await.unwrap();
    let by_owner = TreeRuleEdit {
        custom_field: Some("owner".to_owned()),
        ..rule(0, TreeRuleKind::MetricCustom, "any")
    };
    trees.edit_rule(id(1), &by_owner, false).await.unwrap();
    trees.edit_rule(id(1), &rule(1, TreeRuleKind::Tagk, "host"), false).await.unwrap();
    trees.edit(id(1), &enabled(), false).await.unwrap();
    put(&engine, "x", "host=web02").await;
    drain(&engine).await;
    let dump = dump(&store).await;
    let branch = dump.iter().find(|line| line.contains("\"1\":\"ops\"")).unwrap();
    let row = branch.split(' ').next().unwrap();
    assert!(leaves(&dump).iter().any(|leaf| leaf.starts_with(row) && leaf.contains("web02")));
}

#[tokio::test]
async fn branches_are_read_with_names_and_children() {
    let store = store();
    let engine = start(processing(), &store);
    create(&engine, &["dc", "host"]).await;
    for host in 0..300 {
        put(&engine, "a.b.c", &format!("dc=dal host=h{host}")).await;
    }
    put(&engine, "a.b.c", "dc=lax host=h1").await;
    put(&engine, "a", "dc=dal host=h0").await;
    drain(&engine).await;
    let trees = engine.trees();
    let root = trees.branch(&[0, 1]).await.unwrap().unwrap();
    let names = |children: &[tsd_model::Branch]| -> Vec<String> {
        children.iter().map(|child| child.display_name.clone()).collect()
    };
    assert_eq!(names(&root.children), ["dal", "lax"]);
    assert_eq!(root.leaves, []);
    let dal = trees.branch(&id(1).branch_row(&["dal"])).await.unwrap().unwrap();
    assert_eq!(dal.children.len(), 300);
    let host = trees.branch(&id(1).branch_row(&["dal", "h0"])).await.unwrap().unwrap();
    assert_eq!(names(&host.children), ["a"]);
    let [leaf] = host.leaves.as_slice() else { panic!("one leaf: {host:?}") };
    assert_eq!((leaf.metric.as_str(), leaf.leaf.display_name.as_str()), ("a", "a"));
    let tags = [("host", "h0"), ("dc", "dal")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(leaf.tags, tags);
    for missing in [&[0, 2][..], &[0, 0], &[0, 1, 9], &[0]] {
        assert_eq!(trees.branch(missing).await.unwrap(), None, "{missing:?}");
    }
    // A leaf whose metric has no name is omitted.
    engine.delete_uid(UidKind::Metric, "a").await.unwrap();
    let host = trees.branch(&id(1).branch_row(&["dal", "h0"])).await.unwrap().unwrap();
    assert_eq!(host.leaves, []);
}

#[tokio::test]
async fn a_sync_places_all_series_and_can_be_repeated() {
    let store = store();
    let engine = start(EngineConfig { tree_processing: false, ..processing() }, &store);
    for metric in 0..40 {
        put(&engine, &format!("m{metric}.x"), "dc=dal host=h").await;
    }
    drain(&engine).await;
    let trees = engine.trees();
    assert_eq!(trees.sync(4, false).await.unwrap().enabled_trees, 0);
    create(&engine, &["dc", "host"]).await;
    create(&engine, &["host"]).await;
    store.script(Operation::CompareAndSet, [Fault::Error(StorageError::DiskFull)]);
    trees.sync(4, false).await.unwrap_err();
    let first = trees.sync(4, false).await.unwrap();
    assert_eq!((first.enabled_trees, first.series), (2, 40));
    let complete = dump(&store).await;
    assert_eq!(leaves(&complete).len(), 80);
    let second = trees.sync(1, true).await.unwrap();
    assert_eq!((second.leaves, second.series, second.collisions, second.failed), (0, 40, 0, 0));
    assert_eq!(dump(&store).await, complete);
}

#[tokio::test]
async fn a_deletion_keeps_the_definition_or_not_and_other_trees() {
    let store = store();
    let engine = start(processing(), &store);
    for _ in 0..2 {
        create(&engine, &["dc", "host"]).await;
    }
    put(&engine, "m", "dc=a host=b").await;
    put(&engine, "m", "dc=a host=b rack=c").await;
    drain(&engine).await;
    let trees = engine.trees();
    assert!(trees.delete(id(1), false).await.unwrap() > 3);
    let tree = trees.get(id(1)).await.unwrap().unwrap();
    assert_eq!((tree.definition.name.as_str(), tree.rules.len()), ("T", 3));
    assert!(dump(&store).await.iter().all(|line| line.starts_with("0002")));
    put(&engine, "n", "dc=a host=b").await;
    drain(&engine).await;
    assert!(dump(&store).await.iter().any(|line| line.starts_with("0001")));
    trees.delete(id(1), true).await.unwrap();
    assert_eq!(trees.get(id(1)).await.unwrap(), None);
    put(&engine, "o", "dc=a host=b").await;
    drain(&engine).await;
    let dump = dump(&store).await;
    assert!(dump.iter().all(|line| line.starts_with("0002")), "{dump:?}");
    assert_eq!(leaves(&dump).len(), 3);
}

#[tokio::test]
async fn no_leaf_is_left_by_deletions_while_series_come_in() {
    let store = store();
    let engine = start(processing(), &store);
    create(&engine, &["dc", "host"]).await;
    let puts = async {
        for metric in 0..100 {
            put(&engine, &format!("a.m{metric}"), "dc=a host=b").await;
        }
        drain(&engine).await;
    };
    let deletes = async {
        for _ in 0..20 {
            engine.trees().delete(id(1), false).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::join!(puts, deletes);
    let lines = dump(&store).await;
    let rows = |kind: &str| -> Vec<String> {
        let of_kind = lines.iter().filter(|line| line.contains(kind));
        of_kind.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let branches = rows(" branch ");
    for row in rows(" leaf ") {
        for end in (4..=row.len()).step_by(8) {
            assert!(branches.iter().any(|branch| *branch == row[..end]), "{row} {end}");
        }
    }
}

#[tokio::test]
async fn series_wait_while_the_store_accepts_no_writes() {
    let store = store();
    let engine = start(processing(), &store);
    create(&engine, &["dc"]).await;
    let refused = || Fault::Error(StorageError::Unavailable("away".into()));
    store.script(Operation::CompareAndSet, [refused()]);
    put(&engine, "m", "dc=a").await;
    // The processor retries until the series is placed.
    while leaves(&dump(&store).await).is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drain(&engine).await;
}

#[tokio::test]
async fn an_invalid_stored_rule_excludes_its_tree_only() {
    let store = store();
    let engine = start(processing(), &store);
    create(&engine, &["dc"]).await;
    create(&engine, &["dc"]).await;
    let json = br#"{"type":"METRIC","regex":"(?=a)"}"#;
    let cell =
        CellRef { family: Family::T, qualifier: b"tree_rule:5:0", value: json, timestamp_ms: None };
    let batch = CellBatch::single(&[0, 1], cell).unwrap();
    store.put(&Table::new(TABLE), batch).await.unwrap();
    put(&engine, "m", "dc=a").await;
    drain(&engine).await;
    assert!(dump(&store).await.iter().all(|line| line.starts_with("0002")));
    let tree = engine.trees().get(id(1)).await.unwrap().unwrap();
    assert!(matches!(engine.trees().tester(&tree), Err(TreeError::Build(_))));
}

#[tokio::test]
async fn tests_of_rules_write_nothing() {
    let store = store();
    let engine = start(EngineConfig { tree_processing: false, ..processing() }, &store);
    put(&engine, "a.b", "dc=dal").await;
    drain(&engine).await;
    create(&engine, &["dc"]).await;
    let tree = engine.trees().get(id(1)).await.unwrap().unwrap();
    let tester = engine.trees().tester(&tree).unwrap();
    let series = [0, 0, 1, 0, 0, 1, 0, 0, 1];
    let TestedSeries::Tested { placement, is_rejected, meta, .. } =
        tester.test(&series).await.unwrap()
    else {
        panic!("the series has a TSMeta")
    };
    assert_eq!(
        (placement.path(), placement.leaf.as_deref()),
        (vec!["ROOT".to_owned(), "dal".to_owned(), "a".to_owned()], Some("b"))
    );
    assert_eq!((is_rejected, meta.metric.name.as_str()), (false, "a.b"));
    assert_eq!(dump(&store).await, [""; 0]);
    for missing in [&[1, 2][..], &[0, 0, 9, 0, 0, 1, 0, 0, 1]] {
        assert_eq!(tester.test(missing).await.unwrap(), TestedSeries::NoMeta);
    }
    engine.delete_uid(UidKind::Tagv, "dal").await.unwrap();
    let nameless = tester.test(&series).await.unwrap();
    assert_eq!(nameless, TestedSeries::NoName { kind: UidKind::Tagv, uid: vec![0, 0, 1] });
}

#[test]
fn a_missing_tree_table_stops_the_start() {
    let tables = EngineConfig::default().tables;
    let memory = tsd_storage::MemoryStorage::new([tables.data, tables.uid, tables.meta]);
    let started = Engine::start(processing(), Arc::new(memory));
    assert!(matches!(started, Err(StartError::NoTable(table)) if table.as_str() == TABLE));
}
