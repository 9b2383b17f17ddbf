//! Row compactions.

use crate::{
    common::rewrite,
    kit::{cluster, store},
};

#[tokio::test]
async fn what_was_written_after_the_row_was_read_stays() {
    let cluster = cluster().await;
    rewrite::what_was_written_after_the_row_was_read_stays(&store(&cluster, "")).await;
}

#[tokio::test]
async fn nothing_is_deleted_for_a_column_that_a_marker_hides() {
    let cluster = cluster().await;
    rewrite::nothing_is_deleted_for_a_column_that_a_marker_hides(&store(&cluster, "")).await;
}
