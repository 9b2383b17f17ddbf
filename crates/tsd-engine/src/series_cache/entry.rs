//! An entry of the series cache.

use std::sync::atomic::{AtomicBool, Ordering};

use super::last_notified_row::{LastNotifiedCell, LastNotifiedRow};
use crate::ingest::NameText;

/// Bytes stored in the entry itself: enough for a metric, four tags and a row key.
const INLINE_BYTES: usize = 102;

/// A cached series.
///
/// Two aligned cache lines without indirection, so that one prefetch loads the whole entry.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct SeriesEntry {
    last_notified: LastNotifiedCell,
    write_shard: u32,
    metric_len: u32,
    sent_len: u32,
    text: NameText,
    used: AtomicBool,
    // Metric, tags as sent, row key template.
    bytes: EntryBytes,
}

const _: () = assert!(size_of::<SeriesEntry>() == 128, "an entry is two cache lines");

#[derive(Debug)]
enum EntryBytes {
    Inline(u8, [u8; INLINE_BYTES]),
    Heap(Box<[u8]>),
}

/// A series to insert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSeries<'a> {
    /// Metric as sent.
    pub(crate) metric: &'a [u8],
    /// Tags as sent.
    pub(crate) tags: &'a [u8],
    /// Row key with zeros for the base time.
    pub(crate) template: &'a [u8],
    /// Write shard of its salt bucket.
    pub(crate) write_shard: usize,
    /// The row that row compaction was notified of.
    pub(crate) last_notified: LastNotifiedRow,
}

/// A series found in the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedSeries<'a>(&'a SeriesEntry);

impl SeriesEntry {
    pub(super) fn new(text: NameText, series: NewSeries<'_>) -> Self {
        let NewSeries { metric, tags, template, write_shard, last_notified } = series;
        Self {
            last_notified: LastNotifiedCell::new(last_notified),
            write_shard: write_shard as u32,
            metric_len: metric.len() as u32,
            sent_len: (metric.len() + tags.len()) as u32,
            text,
            used: AtomicBool::new(false),
            bytes: EntryBytes::new([metric, tags, template]),
        }
    }

    /// Reads from both cache lines, which prefetches them. The result has no meaning.
    #[inline]
    pub(super) fn load(&self) -> usize {
        let last = match &self.bytes {
            EntryBytes::Inline(_, bytes) => bytes.last(),
            EntryBytes::Heap(bytes) => bytes.last(),
        };
        self.sent_len as usize ^ usize::from(last.copied().unwrap_or_default())
    }

    #[inline]
    pub(super) fn matches(&self, text: NameText, metric: &[u8], tags: &[u8]) -> bool {
        if self.text != text
            || self.metric_len as usize != metric.len()
            || self.sent_len as usize != metric.len() + tags.len()
        {
            return false;
        }
        self.bytes
            .get()
            .split_at_checked(metric.len())
            .is_some_and(|(head, rest)| head == metric && rest.starts_with(tags))
    }

    /// Metric and tags as sent.
    pub(super) fn names(&self) -> (&[u8], &[u8]) {
        let sent = self.bytes.get().get(..self.sent_len as usize).unwrap_or_default();
        sent.split_at_checked(self.metric_len as usize).unwrap_or_default()
    }

    pub(super) fn set_last_notified(&mut self, last_notified: LastNotifiedRow) {
        self.last_notified.set(last_notified);
    }

    /// Marks the entry as used and returns the series.
    #[inline]
    pub(super) fn hit(&self) -> CachedSeries<'_> {
        // Usually set already. Not writing keeps the cache line shared between cores.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        CachedSeries(self)
    }

    /// Clears the used mark and returns whether it was set.
    pub(super) fn take_used(&mut self) -> bool {
        std::mem::take(self.used.get_mut())
    }
}

impl<'a> CachedSeries<'a> {
    /// Row key with zeros for the base time.
    #[inline]
    pub(crate) fn template(self) -> &'a [u8] {
        self.0.bytes.get().get(self.0.sent_len as usize..).unwrap_or_default()
    }

    /// Write shard of its salt bucket.
    #[inline]
    pub(crate) const fn write_shard(self) -> usize {
        self.0.write_shard as usize
    }

    /// The row that row compaction was last notified of.
    #[inline]
    pub(crate) const fn last_notified(self) -> &'a LastNotifiedCell {
        &self.0.last_notified
    }
}

impl EntryBytes {
    fn new(parts: [&[u8]; 3]) -> Self {
        let mut inline = [0; INLINE_BYTES];
        let mut len = 0;
        for part in parts {
            if let Some(free) = inline.get_mut(len..len + part.len()) {
                free.copy_from_slice(part);
            }
            len += part.len();
        }
        match u8::try_from(len) {
            Ok(short) if len <= INLINE_BYTES => Self::Inline(short, inline),
            _ => Self::Heap(parts.concat().into()),
        }
    }

    #[inline]
    fn get(&self) -> &[u8] {
        match self {
            Self::Inline(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Heap(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_names_and_row_keys_of_any_length() {
        for len in [0, 1, INLINE_BYTES - 8, INLINE_BYTES - 7, 300, 70_000] {
            let tags = vec![b't'; len];
            let series = NewSeries {
                metric: b"sys.cpu",
                tags: &tags,
                template: b"k",
                write_shard: 3,
                last_notified: LastNotifiedRow::NONE,
            };
            let entry = SeriesEntry::new(NameText::Latin1, series);
            assert!(entry.matches(NameText::Latin1, b"sys.cpu", &tags), "{len}");
            assert!(!entry.matches(NameText::Utf8, b"sys.cpu", &tags));
            assert!(!entry.matches(NameText::Latin1, b"sys.cp", &tags));
            assert_eq!(entry.names(), (&b"sys.cpu"[..], &tags[..]));
            assert_eq!((entry.hit().template(), entry.hit().write_shard()), (&b"k"[..], 3));
        }
    }
}
