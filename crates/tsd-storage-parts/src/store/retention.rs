//! Drops expired spans: first an edit of the manifest, then their files are removed.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{PartStore, dropped::DroppedSpans};
use crate::{
    error::PartError,
    layout::PartLayout,
    manifest::{ManifestEdit, ManifestState, QuarantineRecord, SectionRecord},
};

/// Maximum number of files that one edit removes, since flushes and reads wait for an edit.
const EDIT_FILES: usize = 64;

impl PartLayout {
    /// True if all rows of a span have base times before `first_base`. The first span never expires, because it
    /// has the keys without a base time.
    fn is_expired(self, span: u32, first_base: u32) -> bool {
        span > 0 && span.saturating_add(self.span_secs()) <= first_base
    }
}

impl PartStore {
    /// Drops spans whose rows all have base times before `first_base`, some files at a time. A part keeps its
    /// other sections. Reads in progress see the spans until they end.
    ///
    /// # Errors
    ///
    /// An error of the disk. The spans may be dropped or not then.
    pub fn drop_expired(&self, first_base: u32) -> Result<DroppedSpans, PartError> {
        let mut dropped = DroppedSpans::default();
        // The last reader removes the files of live parts. It may be a snapshot that links them.
        let mut live = BTreeSet::new();
        let edit = |state: &ManifestState| {
            live.extend(self.state.lock().parts.keys().copied());
            self.expired_edit(state, first_base, &mut dropped)
        };
        let Some(edit) = self.commit_from(edit, None, |_| {})? else {
            return Ok(DroppedSpans::default());
        };
        for (file, _) in &edit.removed {
            self.losses.lock().remove(file);
        }
        for file in &edit.accepted {
            self.losses.lock().remove(file);
            self.close_quarantined_file(*file);
            if !live.contains(file) {
                self.remove_accepted(*file);
            }
        }
        dropped.quarantined = edit.accepted.len();
        self.dropped.spans.fetch_add(dropped.spans as u64, Ordering::Relaxed);
        self.dropped.bytes.fetch_add(dropped.bytes, Ordering::Relaxed);
        let DroppedSpans { spans, bytes, quarantined, .. } = dropped;
        tracing::info!(table = %self.table, spans, bytes, quarantined, "expired spans dropped");
        Ok(dropped)
    }

    /// The edit that removes expired sections, also from quarantine; `None` if no section has expired.
    fn expired_edit(
        &self,
        state: &ManifestState,
        first_base: u32,
        dropped: &mut DroppedSpans,
    ) -> Option<ManifestEdit> {
        let is_expired = |section: &SectionRecord| self.layout.is_expired(section.span, first_base);
        let mut edit = ManifestEdit::default();
        let (mut files, mut spans) = (BTreeSet::new(), BTreeSet::new());
        let parts = &self.state.lock().parts;
        for section in state.sections.values().filter(|section| is_expired(section)) {
            if files.len() == EDIT_FILES && !files.contains(&section.file) {
                dropped.more = true;
                break;
            }
            files.insert(section.file);
            spans.insert(section.span);
            edit.removed.push((section.file, section.index));
            let part = parts.get(&section.file);
            dropped.bytes += part.map_or(0, |part| part.section_bytes(section.index as usize));
        }
        for record in state.quarantined.values() {
            let (expired, left): (Vec<SectionRecord>, Vec<SectionRecord>) =
                record.sections.iter().copied().partition(is_expired);
            if expired.is_empty() {
                continue;
            }
            spans.extend(expired.iter().map(|section| section.span));
            if left.is_empty() && record.blocks.is_empty() {
                edit.accepted.push(record.file);
            } else {
                edit.quarantined.push(QuarantineRecord { sections: left, ..record.clone() });
            }
        }
        if dropped.more {
            // Spans with remaining sections do not count as dropped.
            let is_left = |span: &u32| {
                let removed: BTreeSet<(u64, u32)> = edit.removed.iter().copied().collect();
                let mut live = state.sections.iter().filter(|(_, section)| section.span == *span);
                live.any(|(place, _)| !removed.contains(place))
            };
            spans.retain(|span| !is_left(span));
        }
        dropped.spans = spans.len();
        let is_empty =
            edit.removed.is_empty() && edit.accepted.is_empty() && edit.quarantined.is_empty();
        (!is_empty).then_some(edit)
    }

    /// Metrics without labels, as (name, value).
    pub(super) fn retention_gauges(&self) -> [(&'static str, f64); 2] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        [
            ("tsd_parts_retention_dropped_bytes_total", count(&self.dropped.bytes)),
            ("tsd_parts_retention_dropped_spans_total", count(&self.dropped.spans)),
        ]
    }

    /// Start of the newest span that begins before a time, and start of the oldest span, epoch seconds.
    pub(crate) fn span_range(&self, before_secs: u32) -> Option<(u32, u32)> {
        let snapshot = self.snapshot();
        let oldest = snapshot.spans().keys().find(|span| **span > 0)?;
        let newest = snapshot.spans().range(..before_secs).next_back()?.0;
        Some((*newest, *oldest))
    }
}
