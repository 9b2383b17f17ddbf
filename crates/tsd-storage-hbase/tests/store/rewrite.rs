//! Row compactions.

use crate::{
    fake_cluster::{cluster, store},
    scenarios::rewrite,
};

#[tokio::test]
async fn cells_written_since_the_read_are_kept() {
    let cluster = cluster().await;
    rewrite::cells_written_since_the_read_are_kept(&store(&cluster, "")).await;
}

#[tokio::test]
async fn hidden_column_is_put_again_before_deletes() {
    let cluster = cluster().await;
    rewrite::hidden_column_is_put_again_before_deletes(&store(&cluster, "")).await;
}
