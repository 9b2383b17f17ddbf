//! A value per kind of name.

use std::ops::{Index, IndexMut};

use tsd_model::UidKind;

/// A value for metrics, one for tag keys, one for tag values.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerKind<T> {
    pub(crate) metric: T,
    pub(crate) tagk: T,
    pub(crate) tagv: T,
}

impl<T> PerKind<T> {
    /// Creates each value by `make`.
    pub(crate) fn from_fn(mut make: impl FnMut(UidKind) -> T) -> Self {
        Self { metric: make(UidKind::Metric), tagk: make(UidKind::Tagk), tagv: make(UidKind::Tagv) }
    }

    /// Each value with its kind.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (UidKind, &T)> {
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
