//! `tsdb uid treesync` and `treepurge`: fill trees from stored TSMeta, and delete the content of trees.

use tsd_engine::{EngineHandle, TreeId};
use tsd_meta::TreeError;

use super::{output::UidOutput, status::FAILED};
use crate::{tell, tool::default_threads};

/// Places every series that has a TSMeta in the enabled trees.
pub(super) async fn sync(engine: &EngineHandle, out: &mut UidOutput<'_>) -> u8 {
    if !engine.config().tree_processing {
        tell!("tsdb: Tree processing is disabled (tsd.core.tree.enable_processing)");
        return 0;
    }
    let random = engine.config().uids.random_metrics;
    match engine.trees().sync(default_threads(), random).await {
        Ok(report) => {
            if report.enabled_trees == 0 {
                tell!("tsdb: No enabled trees were found");
            }
            out.counted(
                "treesync",
                &[
                    ("series", report.series),
                    ("new leaves", report.leaves),
                    ("collisions", report.collisions),
                    ("not matched", report.not_matched),
                    ("failed", report.failed),
                ],
            );
            0
        }
        Err(error) => fail(&error),
    }
}

/// Deletes the content of a tree, and the tree itself with `definition`.
pub(super) async fn purge(
    engine: &EngineHandle,
    tree: &str,
    definition: bool,
    out: &mut UidOutput<'_>,
) -> u8 {
    let Some(id) = tree.parse().ok().and_then(TreeId::from_number) else {
        tell!("tsdb: '{tree}' is not the number of a tree");
        return FAILED;
    };
    match engine.trees().delete(id, definition).await {
        Ok(rows) => {
            out.counted("treepurge", &[("rows", rows)]);
            0
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &TreeError) -> u8 {
    tell!("tsdb: {error:#}");
    FAILED
}
