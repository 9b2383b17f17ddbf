//! UIDs whose kind the compiler knows.
//!
//! Metrics, tag keys and tag values have UIDs of the same form, so code that swaps two of them reads or writes another
//! series. With a type for each kind, such code does not compile. Code that handles all kinds alike, for example the
//! UID table, uses [`Uid`] with [`UidKind`].

use std::{fmt, hash::Hash, marker::PhantomData, ops::Deref};

use crate::uid::{Uid, UidError, UidKind};

/// A kind of UID as a type.
pub trait KnownKind:
    Copy + Ord + Hash + fmt::Debug + Send + Sync + private::Sealed + 'static
{
    /// The kind.
    const KIND: UidKind;
}

mod private {
    pub trait Sealed {}
}

/// Kind of [`MetricUid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricKind {}

/// Kind of [`TagkUid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TagkKind {}

/// Kind of [`TagvUid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TagvKind {}

impl private::Sealed for MetricKind {}
impl private::Sealed for TagkKind {}
impl private::Sealed for TagvKind {}

impl KnownKind for MetricKind {
    const KIND: UidKind = UidKind::Metric;
}

impl KnownKind for TagkKind {
    const KIND: UidKind = UidKind::Tagk;
}

impl KnownKind for TagvKind {
    const KIND: UidKind = UidKind::Tagv;
}

/// A UID of one kind. Ordered and hashed as its bytes.
///
/// A swapped tag key and value do not compile:
///
/// ```compile_fail,E0308
/// use tsd_model::{MetricUid, SeriesKey, TableSchema, TagkUid, TagvUid};
///
/// fn series(metric: MetricUid, tagk: TagkUid, tagv: TagvUid) {
///     let _ = SeriesKey::try_new(&TableSchema::opentsdb_default(), metric, &[(tagv, tagk)]);
/// }
/// ```
///
/// A tag key in place of the metric does not compile either:
///
/// ```compile_fail,E0308
/// use tsd_model::{MetricUid, SeriesKey, TableSchema, TagkUid, TagvUid};
///
/// fn series(tagk: TagkUid, tagv: TagvUid) {
///     let _ = SeriesKey::try_new(&TableSchema::opentsdb_default(), tagk, &[(tagk, tagv)]);
/// }
/// ```
///
/// The right order compiles:
///
/// ```
/// use tsd_model::{MetricUid, SeriesKey, TableSchema, TagkUid, TagvUid};
///
/// fn series(metric: MetricUid, tagk: TagkUid, tagv: TagvUid) {
///     let _ = SeriesKey::try_new(&TableSchema::opentsdb_default(), metric, &[(tagk, tagv)]);
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindUid<K> {
    uid: Uid,
    kind: PhantomData<K>,
}

/// UID of a metric.
pub type MetricUid = KindUid<MetricKind>;

/// UID of a tag key.
pub type TagkUid = KindUid<TagkKind>;

/// UID of a tag value.
pub type TagvUid = KindUid<TagvKind>;

impl<K: KnownKind> KindUid<K> {
    /// The kind.
    pub const KIND: UidKind = K::KIND;

    /// Declares that a UID is of this kind.
    #[must_use]
    #[inline]
    pub const fn new(uid: Uid) -> Self {
        Self { uid, kind: PhantomData }
    }

    /// Creates a UID of one to eight bytes.
    #[inline]
    pub fn try_new(bytes: &[u8]) -> Result<Self, UidError> {
        Uid::try_new(bytes).map(Self::new)
    }

    /// UID of an assigned number; zero is never assigned.
    pub fn from_number(number: u64, width: usize) -> Result<Self, UidError> {
        Uid::from_number(number, width).map(Self::new)
    }

    /// The UID without its kind.
    #[must_use]
    #[inline]
    pub const fn uid(self) -> Uid {
        self.uid
    }
}

impl<K> Deref for KindUid<K> {
    type Target = Uid;

    #[inline]
    fn deref(&self) -> &Uid {
        &self.uid
    }
}

impl<K> AsRef<[u8]> for KindUid<K> {
    fn as_ref(&self) -> &[u8] {
        self.uid.as_bytes()
    }
}

/// Upper-case hex.
impl<K> fmt::Display for KindUid<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uid.fmt(f)
    }
}

impl<K: KnownKind> fmt::Debug for KindUid<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", K::KIND.type_name(), self.uid)
    }
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;

    use super::*;
    use crate::{SeriesKey, SeriesKeyError, TableSchema};

    /// Fails to compile if a type implements a trait: the method is then ambiguous.
    macro_rules! assert_not_implemented {
        ($of:ty: $implemented:path) => {
            const _: fn() = || {
                trait AmbiguousIf<A> {
                    fn check() {}
                }
                struct Implemented;
                impl<T: ?Sized> AmbiguousIf<()> for T {}
                impl<T: ?Sized + $implemented> AmbiguousIf<Implemented> for T {}
                let _ = <$of as AmbiguousIf<_>>::check;
            };
        };
    }

    assert_not_implemented!(MetricUid: From<TagkUid>);
    assert_not_implemented!(TagkUid: From<TagvUid>);
    assert_not_implemented!(TagvUid: From<TagkUid>);
    assert_not_implemented!(TagkUid: PartialEq<TagvUid>);
    // A conversion in two steps would pass by way of a plain UID.
    assert_not_implemented!(MetricUid: From<Uid>);
    assert_not_implemented!(TagkUid: From<Uid>);
    assert_not_implemented!(TagvUid: From<Uid>);

    #[test]
    fn kinds_are_different_types_of_the_size_of_a_uid() {
        let types = [TypeId::of::<MetricUid>(), TypeId::of::<TagkUid>(), TypeId::of::<TagvUid>()];
        assert!(types[0] != types[1] && types[1] != types[2] && types[0] != types[2]);
        assert_eq!(size_of::<MetricUid>(), size_of::<Uid>());
        assert_eq!(UidKind::ALL, [MetricUid::KIND, TagkUid::KIND, TagvUid::KIND]);
    }

    /// Compiles only while each UID of a series has the type of its kind.
    #[test]
    fn a_series_has_a_metric_and_pairs_of_tag_key_and_value() {
        type NewSeries =
            fn(&TableSchema, MetricUid, &[(TagkUid, TagvUid)]) -> Result<SeriesKey, SeriesKeyError>;
        let new: NewSeries = SeriesKey::try_new;
        let metric = MetricUid::from_number(1, 3);
        let key = metric.map(|metric| new(&TableSchema::opentsdb_default(), metric, &[]));
        assert_eq!(key, Ok(Err(SeriesKeyError::NoTags)));
    }
}
