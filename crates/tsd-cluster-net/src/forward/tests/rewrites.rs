//! Rewrites of rows: made only if the owner holds the rows from which they were planned.

use tsd_storage::{ReplacedColumn, RowRewrite};

use super::*;

/// Plans the delete of a series' column.
fn plan(node: &ForwardNode, series: u16) -> RowRewrite {
    let read = node.writes.read_version(&table());
    let Column { row, family, qualifier } = column(series);
    let delete = vec![ReplacedColumn { family, qualifier, timestamp_ms: i64::MAX }];
    RowRewrite { row, put: None, superseded_ms: None, delete, read, whole_row: true }
}

async fn rewrite(node: &ForwardNode, plan: RowRewrite) -> Result<(), StorageError> {
    node.writes.rewrite_row(&table(), plan).await
}

/// Lets a node learn the version of the owner of a series.
async fn learn_version(node: &ForwardNode, series: u16) {
    let changed = rewrite(node, plan(node, series)).await.unwrap_err();
    assert!(matches!(changed, StorageError::Changed), "{changed}");
}

#[tokio::test]
async fn a_rewrite_is_made_once_the_version_of_the_owner_is_known() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    let (own, other) = (series_of(&shared, 1), series_of(&shared, 2));
    nodes[0].writes.put(&table(), batch([own, other], b"1")).await.unwrap();
    rewrite(&nodes[0], plan(&nodes[0], own)).await.unwrap();
    learn_version(&nodes[0], other).await;
    assert_eq!(holders(&nodes, other).await, [2]);
    rewrite(&nodes[0], plan(&nodes[0], other)).await.unwrap();
    assert_eq!(holders(&nodes, other).await, [0; 0]);
}

/// The stores change their version with each write, as a log does with each flush.
#[tokio::test]
async fn a_rewrite_that_was_planned_before_a_change_at_the_owner_is_out_of_date() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    for (series, owner) in [1, 2].map(|owner| (series_of(&shared, owner), owner)) {
        nodes[0].writes.put(&table(), batch([series], b"1")).await.unwrap();
        if owner == 2 {
            learn_version(&nodes[0], series).await;
        }
        let planned = plan(&nodes[0], series);
        nodes[1].writes.put(&table(), batch([series], b"2")).await.unwrap();
        // Another rewrite learns the new version, which does not count for the first.
        if owner == 2 {
            learn_version(&nodes[0], series).await;
        }
        let changed = rewrite(&nodes[0], planned).await.unwrap_err();
        assert!(matches!(changed, StorageError::Changed), "{changed}");
        assert_eq!(holders(&nodes, series).await, [owner]);
        rewrite(&nodes[0], plan(&nodes[0], series)).await.unwrap();
        assert_eq!(holders(&nodes, series).await, [0; 0]);
    }
}

#[tokio::test]
async fn a_rewrite_of_a_row_that_has_moved_meanwhile_is_out_of_date() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(3, &shared, TIMEOUT).await;
    settled(&nodes).await;
    // The first node knows the versions of all nodes.
    for owner in [2, 3] {
        learn_version(&nodes[0], series_of(&shared, owner)).await;
    }
    let of_third: Vec<u16> = (0..500).filter(|series| owner(&shared, *series) == 3).collect();
    let planned: Vec<_> = of_third.iter().map(|series| plan(&nodes[0], *series)).collect();
    assert!(nodes[2].slots.drain(TIMEOUT).await.unwrap());
    let mut owners = BTreeSet::new();
    for (series, planned) in of_third.into_iter().zip(planned) {
        owners.insert(owner(&shared, series));
        let changed = rewrite(&nodes[0], planned).await.unwrap_err();
        assert!(matches!(changed, StorageError::Changed), "{changed}");
        rewrite(&nodes[0], plan(&nodes[0], series)).await.unwrap();
    }
    assert_eq!(owners, BTreeSet::from([1, 2]));
}

#[tokio::test]
async fn a_fenced_owner_makes_no_rewrite() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(1, &shared, TIMEOUT).await;
    settled(&nodes).await;
    nodes[0].writes.put(&table(), batch([1], b"1")).await.unwrap();
    nodes[0].membership.proof.send_replace(Some(Err(ProofError::Fenced("by node 2".into()))));
    let error = rewrite(&nodes[0], plan(&nodes[0], 1)).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("by node 2"), "{error}");
    assert_eq!(holders(&nodes, 1).await, [1]);
}
