//! UIDs that several names have: their points are mixed, so OpenTSDB gives the UID a name made of all of
//! them and frees the names, which get new UIDs when they are next used.
//!
//! The new mappings are written before the old ones are deleted, so an interrupted repair leaves no point
//! without a name; the next check goes on with it.

use std::collections::BTreeMap;

use bytes::Bytes;
use tsd_model::{Family, UidKind, to_hex};
use tsd_storage::StorageError;

use super::{Mapping, Name, UidCheck, reverse};
use crate::{FsckLevel, uid::UidTable};

/// First part of the name of a UID that several names had.
const PREFIX: &[u8] = b"fsck";
/// Longest name that is made, bytes; row keys are limited to 32767.
const MAX_NAME_BYTES: usize = 32_000;

/// Line around the report of a repair.
const RULE: &str = "----------------------------------";

/// A name and the time of its mapping.
type Holder = (Bytes, i64);

impl UidCheck<'_> {
    /// Finds the names of the UIDs that may have several, and leaves each one.
    pub(super) async fn separate_names(&mut self, kind: UidKind) -> Result<(), StorageError> {
        let shared = std::mem::take(&mut self.shared);
        if shared.is_empty() {
            return Ok(());
        }
        let mut holders: BTreeMap<Bytes, Vec<Holder>> =
            shared.into_iter().map(|uid| (uid, Vec::new())).collect();
        let mut rows = self.scan(kind, Family::Id);
        while let Some(batch) = rows.next_rows().await? {
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
        let mut names: Vec<Bytes> = holders.into_iter().map(|(name, _)| name).collect();
        match &*names {
            [] => Ok(()),
            [only] if current.as_ref() == Some(only) => Ok(()),
            // The mapping from the UID is wrong.
            [only] => {
                let mapping = Mapping { name: only.clone(), uid };
                self.restore_name(kind, &mapping, current).await
            }
            _ => {
                names.sort();
                self.rename_shared(kind, &uid, &names, current).await
            }
        }
    }

    async fn rename_shared(
        &mut self,
        kind: UidKind,
        uid: &Bytes,
        names: &[Bytes],
        current: Option<Bytes>,
    ) -> Result<(), StorageError> {
        let id = to_hex(uid);
        let begun = names.iter().find(|name| is_begun_repair(name, names));
        let joined = begun.cloned().unwrap_or_else(|| joined_name(names));
        if joined.len() > MAX_NAME_BYTES {
            self.warn(&format!(
                "{} names share the {kind} UID {id}, too many for one name; delete some of them first",
                names.len()
            ));
            return Ok(());
        }
        let (storage, table) = (self.table.storage.clone(), self.table.table.clone());
        if !names.contains(&joined) {
            let column = UidTable::forward(kind, &joined);
            if !storage.compare_and_set(&table, column, None, uid.clone()).await? {
                let shown = Name(&joined);
                let text = format!("The {kind} name {shown} exists; rename it first");
                self.warn(&text);
                return Ok(());
            }
            self.kinds[kind].names += 1;
            let shown = Name(&joined);
            let text = format!("Created forward {kind} mapping for fsck'd UID {shown} -> {id}");
            self.repaired(&text);
        }
        if current.as_ref() != Some(&joined) {
            let column = reverse(kind, uid);
            if !storage.compare_and_set(&table, column, current, joined.clone()).await? {
                self.changed(&format!("the {kind} mapping of {id}"));
                return Ok(());
            }
            let shown = Name(&joined);
            self.repaired(&format!("Restoring {kind} reverse mapping: {id} -> {shown}"));
        }
        for name in names.iter().filter(|name| **name != joined) {
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
        let text = format!("Corrupted UID [{id}] renamed to [{}]", Name(&joined));
        self.say(FsckLevel::Error, &text);
        self.say(FsckLevel::Error, RULE);
        Ok(())
    }
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

/// True if `joined` is the name that a former check made of the other `names` and more, before it was
/// interrupted.
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
