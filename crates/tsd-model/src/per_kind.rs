//! One value for each kind of name.

use std::ops::{Index, IndexMut};

use crate::uid::UidKind;

/// One value each for metrics, tag keys and tag values.
#[derive(Clone, Debug, Default)]
pub struct PerKind<T> {
    /// Value of metrics.
    pub metric: T,
    /// Value of tag keys.
    pub tagk: T,
    /// Value of tag values.
    pub tagv: T,
}

impl<T> PerKind<T> {
    /// Creates each value with `make`.
    #[must_use]
    pub fn from_fn(mut make: impl FnMut(UidKind) -> T) -> Self {
        Self { metric: make(UidKind::Metric), tagk: make(UidKind::Tagk), tagv: make(UidKind::Tagv) }
    }

    /// Each value with its kind.
    pub fn iter(&self) -> impl Iterator<Item = (UidKind, &T)> {
        UidKind::ALL.into_iter().map(|kind| (kind, &self[kind]))
    }
}

impl<T> Index<UidKind> for PerKind<T> {
    type Output = T;

    fn index(&self, kind: UidKind) -> &T {
        match kind {
            UidKind::Metric => &self.metric,
            UidKind::Tagk => &self.tagk,
            UidKind::Tagv => &self.tagv,
        }
    }
}

impl<T> IndexMut<UidKind> for PerKind<T> {
    fn index_mut(&mut self, kind: UidKind) -> &mut T {
        match kind {
            UidKind::Metric => &mut self.metric,
            UidKind::Tagk => &mut self.tagk,
            UidKind::Tagv => &mut self.tagv,
        }
    }
}
