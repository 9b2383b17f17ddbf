//! Reads of rows.

use std::sync::Arc;

use bytes::Bytes;

use super::tables;
use crate::{Get, Storage};

pub(super) async fn a_row_that_was_never_put_is_absent(store: Arc<dyn Storage>) {
    let [data, _] = tables();
    let row = store.get(&data, Get::row(Bytes::from_static(b"row"))).await.unwrap();
    assert!(row.is_none());
}
