//! One suite that every store passes.
//!
//! Each case is a function of its own, so that a failure names what is broken; [`run_all`] runs
//! them in turn, each on a fresh store. A case panics where the store is wrong.
//!
//! Stores are compared by their cells, with packed runs expanded: how a store packs is its own
//! business.

use std::{ops::AsyncFn, sync::Arc};

use crate::{BoxFuture, Storage, Table};

mod conditional;
mod kit;
mod reads;
mod scans;
mod writes;

/// A case: its name, and what it does to a fresh store.
pub type Case = (&'static str, fn(Arc<dyn Storage>) -> BoxFuture<'static, ()>);

/// Tables a store under test must have.
#[must_use]
pub fn tables() -> [Table; 2] {
    [Table::new("tsdb"), Table::new("tsdb-uid")]
}

macro_rules! cases {
    ($($module:ident :: $case:ident,)*) => {
        /// Every case.
        pub const CASES: &[Case] = &[$((stringify!($case), |store| {
            Box::pin($module::$case(store))
        }),)*];
    };
}

cases! {
    reads::a_row_that_was_never_put_is_absent,
}

/// Runs every case on a store that `make` makes, empty and with [`tables`], and closes the store.
pub async fn run_all(make: impl AsyncFn() -> Arc<dyn Storage>) {
    for (name, case) in CASES {
        // Shown by the test harness only where the case fails.
        println!("conformance: {name}");
        let store = make().await;
        case(Arc::clone(&store)).await;
        store.close().await.expect("close");
    }
}
