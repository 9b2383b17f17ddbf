//! Separates names that share a UID. One name keeps the UID: the name that the UID is mapped to, otherwise the newest.
//! The other names are freed, and get new UIDs when they are next used.
//!
//! OpenTSDB gives the UID a name made of all its names, so that no query finds the points by a known name. This check
//! does that only for more than two names of a metric without points.
//!
//! The new mappings are written before the old ones are deleted, so an interrupted repair leaves no point without a
//! name. The next check continues the repair.

use std::collections::BTreeMap;

use bytes::Bytes;
use tsd_engine::UidTable;
use tsd_model::{Family, UidKind, to_hex};
use tsd_storage::{Scan, StorageError, StorageExt, prefix_range, salts};

use super::{Mapping, Name, UidCheck, reverse};
use crate::fsck::FsckLevel;

/// Prefix of the joined name of a UID that several names had.
const PREFIX: &[u8] = b"fsck";
/// Longest joined name in bytes; row keys are limited to 32767.
const MAX_NAME_BYTES: usize = 32_000;

/// Line around the report of a repair.
const RULE: &str = "----------------------------------";

/// A name and the time of its mapping.
type Holder = (Bytes, i64);

impl UidCheck<'_> {
    /// Finds the names of the UIDs that may have several, and leaves each UID one name.
    pub(super) async fn separate_names(&mut self, kind: UidKind) -> Result<(), StorageError> {
        let shared = std::mem::take(&mut self.shared);
        if shared.is_empty() {
            return Ok(());
        }
        let mut holders: BTreeMap<Bytes, Vec<Holder>> =
            shared.into_iter().map(|uid| (uid, Vec::new())).collect();
        let mut rows = self.scan(kind, Family::Id);
        while let Some(batch) = rows.next_rows().await? {
            if self.stops_after(batch.len()) {
                return Ok(());
            }
            for (Mapping { name, uid }, at_ms) in
                batch.into_iter().filter_map(|row| self.mapping(kind, Family::Id, row))
            {
                if let Some(names) = holders.get_mut(&uid) {
                    names.push((name, at_ms));
                }
            }
        }
        drop(rows);
        for (uid, names) in holders {
            self.leave_one_name(kind, uid, names).await?;
        }
        Ok(())
    }

    async fn leave_one_name(
        &mut self,
        kind: UidKind,
        uid: Bytes,
        holders: Vec<Holder>,
    ) -> Result<(), StorageError> {
        let reverse_cell = self.name_cell(kind, &uid).await?;
        let newest_ms = holders
            .iter()
            .map(|(_, at_ms)| *at_ms)
            .chain(reverse_cell.as_ref().map(|cell| cell.timestamp_ms))
            .max();
        if newest_ms.is_some_and(|at_ms| !self.is_settled(at_ms)) {
            self.left_unsettled(kind, &uid);
            return Ok(());
        }
        let current = reverse_cell.map(|cell| cell.value);
        let mut names: Vec<Bytes> = holders.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        match &*names {
            [] => Ok(()),
            [only] if current.as_ref() == Some(only) => Ok(()),
            // Only the mapping from the UID is wrong.
            [only] => {
                let mapping = Mapping { name: only.clone(), uid };
                self.restore_name(kind, &mapping, current).await
            }
            _ => {
                let begun = names.iter().find(|name| is_begun_repair(name, &names)).cloned();
                let is_used = names.len() == 2 || self.has_points(kind, &uid).await?;
                let kept = if is_used {
                    let is_known = |(name, _): &&Holder| Some(name) != begun.as_ref();
                    kept_name(holders.iter().filter(is_known), current.as_ref())
                } else {
                    Some(begun.unwrap_or_else(|| joined_name(&names)))
                };
                let Some(kept) = kept else { return Ok(()) };
                self.leave_name(kind, &uid, &names, (kept, current)).await
            }
        }
    }

    /// True if points may have a UID. Always true for tags, because checking them would take a read of all keys.
    async fn has_points(&self, kind: UidKind, uid: &[u8]) -> Result<bool, StorageError> {
        if kind != UidKind::Metric {
            return Ok(true);
        }
        for table in &self.series_tables {
            for salt in salts(self.table.schema) {
                let (start, stop) = prefix_range(&[&salt[..], uid].concat());
                let scan = Scan { start, stop, limit: Some(1), ..Scan::default() };
                if self.table.storage.scan(table, scan).next_rows().await?.is_some() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Leaves a UID only the name `kept`, which is one of its `names` or a new one.
    async fn leave_name(
        &mut self,
        kind: UidKind,
        uid: &Bytes,
        names: &[Bytes],
        (kept, current): (Bytes, Option<Bytes>),
    ) -> Result<(), StorageError> {
        let id = to_hex(uid);
        if kept.len() > MAX_NAME_BYTES {
            self.warn(&format!(
                "{} names share the {kind} UID {id}, too many for one name; delete some of them first",
                names.len()
            ));
            return Ok(());
        }
        let (storage, table) = (self.table.storage.clone(), self.table.table.clone());
        if !names.contains(&kept) {
            let column = UidTable::forward(kind, &kept);
            if !storage.compare_and_set(&table, column, None, uid.clone()).await? {
                let shown = Name(&kept);
                let text = format!("The {kind} name {shown} exists; rename it first");
                self.warn(&text);
                return Ok(());
            }
            self.kinds[kind].names += 1;
            let shown = Name(&kept);
            let text = format!("Created forward {kind} mapping for fsck'd UID {shown} -> {id}");
            self.repaired(&text);
        }
        if current.as_ref() != Some(&kept) {
            let column = reverse(kind, uid);
            if !storage.compare_and_set(&table, column, current, kept.clone()).await? {
                self.changed(&format!("the {kind} mapping of {id}"));
                return Ok(());
            }
            let shown = Name(&kept);
            self.repaired(&format!("Restoring {kind} reverse mapping: {id} -> {shown}"));
        }
        for name in names.iter().filter(|name| **name != kept) {
            let column = UidTable::forward(kind, name);
            if storage.compare_and_delete(&table, column, uid.clone()).await? {
                self.kinds[kind].names = self.kinds[kind].names.saturating_sub(1);
                let shown = Name(name);
                let text = format!("Removed forward {kind} mapping for {shown} -> {id}");
                self.repaired_mapping(name, uid, &text);
            }
        }
        self.say(FsckLevel::Error, RULE);
        self.say(FsckLevel::Error, "-     UID COLLISION DETECTED     -");
        let what = if names.contains(&kept) { "keeps the name" } else { "renamed to" };
        let text = format!("Corrupted UID [{id}] {what} [{}]", Name(&kept));
        self.say(FsckLevel::Error, &text);
        self.say(FsckLevel::Error, RULE);
        Ok(())
    }
}

/// The name that keeps a UID: the name that the UID is mapped to, otherwise the newest.
fn kept_name<'h>(
    holders: impl Iterator<Item = &'h Holder>,
    current: Option<&Bytes>,
) -> Option<Bytes> {
    let rank = |(name, at_ms): &&Holder| (current == Some(name), *at_ms);
    holders.max_by_key(rank).map(|(name, _)| name.clone())
}

/// `fsck.<name1>.<name2>…`
fn joined_name(names: &[Bytes]) -> Bytes {
    let mut joined = PREFIX.to_vec();
    for name in names {
        joined.push(b'.');
        joined.extend_from_slice(name);
    }
    joined.into()
}

/// True if an interrupted check made the name `joined` of the other `names` and possibly more.
fn is_begun_repair(joined: &Bytes, names: &[Bytes]) -> bool {
    let has = |name: &Bytes| {
        let part = [b".", &name[..]].concat();
        joined.windows(part.len()).any(|window| window == part)
    };
    joined.starts_with(PREFIX) && names.iter().filter(|name| *name != joined).all(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_repair_keeps_its_name() {
        let names = |names: &[&'static str]| -> Vec<Bytes> {
            names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect()
        };
        assert_eq!(joined_name(&names(&["m", "o"])), "fsck.m.o");
        let begun = |current: &'static str, others: &[&'static str]| {
            is_begun_repair(&Bytes::from_static(current.as_bytes()), &names(others))
        };
        assert!(begun("fsck.m.o", &["fsck.m.o", "m", "o"]));
        assert!(begun("fsck.m.o", &["fsck.m.o", "o"]));
        assert!(!begun("fsck.m.o", &["fsck.m.o", "p"]));
        assert!(!begun("m", &["m", "o"]));
    }
}
