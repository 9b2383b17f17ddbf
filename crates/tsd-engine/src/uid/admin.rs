//! Administration of names: look up, suggest, assign, rename, delete.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tsd_model::{
    Family, MAX_NAME_BYTES, NameError, NameRole, UID_COUNTER_ROW, Uid, UidKind, decode_latin1,
    encode_latin1, encode_latin1_lossy,
};
use tsd_storage::{CellBatch, CellRef, Column, Delete, Recovery, Scan, StorageError};

use super::{NamePeers, Resolver, UidError, UidTable};
use crate::{ingest::NameRules, series_cache::SeriesCache, series_scan::prefix_end};

/// Attempts of a rename's puts.
const RENAME_ATTEMPTS: u32 = 6;
/// Pause after the first attempt; it doubles with each further one.
const RENAME_PAUSE: Duration = Duration::from_millis(800);

/// Operations on names, requested by clients.
#[derive(Clone, Debug)]
pub struct UidAdmin {
    pub(crate) table: UidTable,
    pub(crate) resolver: Resolver,
    pub(crate) rules: NameRules,
    /// Names that this process is changing.
    pub(crate) changing: Arc<papaya::HashSet<(UidKind, Bytes)>>,
    /// The other nodes of the cluster, which have caches too.
    pub(crate) peers: Option<Arc<dyn NamePeers>>,
}

/// Marks a name as being changed until it is dropped.
struct NameChange<'a> {
    admin: &'a UidAdmin,
    key: (UidKind, Bytes),
}

impl Drop for NameChange<'_> {
    fn drop(&mut self) {
        self.admin.changing.pin().remove(&self.key);
    }
}

impl UidAdmin {
    /// UID of a name.
    pub async fn uid_of(&self, kind: UidKind, name: &str) -> Result<Uid, UidError> {
        let stored = Bytes::from(encode_latin1_lossy(name));
        self.find(kind, stored)
            .await?
            .ok_or_else(|| UidError::NoSuchName { kind, name: name.to_owned() })
    }

    /// UIDs of names; those not cached are read in one call.
    pub async fn uids_of(
        &self,
        kind: UidKind,
        names: &[String],
    ) -> Vec<Result<Option<Uid>, UidError>> {
        let names = names.iter().map(|name| Bytes::from(encode_latin1_lossy(name))).collect();
        self.resolver.look_up(kind, names).await.into_iter().map(|(_, found)| found).collect()
    }

    /// Changes whenever a name may have changed: what was read in an earlier epoch may be stale.
    pub(crate) fn epoch(&self) -> u64 {
        self.resolver.caches.epoch()
    }

    /// Name of a UID.
    pub async fn name_of(&self, kind: UidKind, uid: Uid) -> Result<String, UidError> {
        let names = self.names_of(kind, &[uid]).await?;
        names
            .into_iter()
            .next()
            .flatten()
            .ok_or_else(|| UidError::NoSuchUid { kind, uid: uid.as_bytes().to_vec() })
    }

    /// Names of UIDs; those not cached are read in one call.
    pub async fn names_of(
        &self,
        kind: UidKind,
        uids: &[Uid],
    ) -> Result<Vec<Option<String>>, UidError> {
        let caches = &self.resolver.caches;
        let epoch = caches.epoch();
        let mut names: Vec<Option<String>> =
            uids.iter().map(|&uid| caches.name(kind, uid).map(|n| decode_latin1(&n))).collect();
        let missing: Vec<usize> =
            names.iter().enumerate().filter(|(_, n)| n.is_none()).map(|(i, _)| i).collect();
        if missing.is_empty() {
            return Ok(names);
        }
        let uncached: Vec<Uid> = missing.iter().filter_map(|&i| uids.get(i).copied()).collect();
        let found = self.table.names(kind, &uncached).await?;
        for ((i, uid), name) in missing.into_iter().zip(uncached).zip(found) {
            if let (Some(name), Some(slot)) = (name, names.get_mut(i)) {
                caches.insert_name_at(epoch, kind, &name, uid);
                *slot = Some(decode_latin1(&name));
            }
        }
        Ok(names)
    }

    /// Names that begin with `prefix`, in byte order, at most `max`.
    pub async fn suggest(
        &self,
        kind: UidKind,
        prefix: &str,
        max: usize,
    ) -> Result<Vec<String>, UidError> {
        let prefix = encode_latin1_lossy(prefix);
        if prefix.len() > MAX_NAME_BYTES {
            return Ok(Vec::new());
        }
        let (start, stop) = if prefix.is_empty() {
            (b"!".to_vec(), b"~".to_vec())
        } else {
            let stop = prefix_end(&prefix).to_vec();
            (prefix, stop)
        };
        let scan = Scan {
            start: start.into(),
            stop: stop.into(),
            family: Some(Family::Id),
            qualifier: Some(Bytes::from_static(kind.as_str().as_bytes())),
            limit: Some(max),
            ..Scan::default()
        };
        let epoch = self.resolver.caches.epoch();
        let mut rows = self.table.storage.scan(&self.table.table, scan);
        let mut names = Vec::new();
        while names.len() < max
            && let Some(batch) = rows.next_rows().await?
        {
            for row in batch.into_iter().take(max - names.len()) {
                let Some(cell) = row.cells.first() else { continue };
                if let Ok(uid) = self.table.uid_in(kind, &row.key, cell) {
                    self.resolver.caches.insert_at(epoch, kind, &row.key, uid);
                }
                names.push(decode_latin1(&row.key));
            }
        }
        Ok(names)
    }

    /// Assigns a UID to a new name, regardless of the auto-create settings.
    pub async fn assign(&self, kind: UidKind, name: &str) -> Result<Uid, UidError> {
        let stored = self.check(kind, name)?;
        if let Some(uid) = self.find(kind, stored.clone()).await? {
            return Err(UidError::NameTaken {
                kind,
                name: name.to_owned(),
                uid: uid.as_bytes().to_vec(),
            });
        }
        if !self.resolver.filter.allows(kind, name) {
            return Err(UidError::BlockedByFilter { kind, name: name.to_owned() });
        }
        match self.resolver.assign(kind, vec![stored]).await.pop() {
            Some((_, result)) => result,
            None => Err(UidError::Lost),
        }
    }

    /// UID of a name; assigns one if it has none. As OpenTSDB's command line does, it accepts every name
    /// that can be stored: it checks neither its characters nor the UID filter.
    pub async fn get_or_assign(&self, kind: UidKind, name: &str) -> Result<Uid, UidError> {
        let illegal = |character| UidError::IllegalName { kind, name: name.to_owned(), character };
        if name.is_empty() {
            return Err(illegal(None));
        }
        let stored = self.encode(kind, name)?;
        if stored.as_ref() == UID_COUNTER_ROW {
            return Err(illegal(name.chars().next()));
        }
        if let Some(uid) = self.find(kind, stored.clone()).await? {
            return Ok(uid);
        }
        match self.resolver.assign(kind, vec![stored]).await.pop() {
            Some((_, result)) => result,
            None => Err(UidError::Lost),
        }
    }

    /// Deletes a name: both mappings and the UIDMeta; its points become orphans. Returns the UID that it had.
    ///
    /// The mapping from the name goes first: after a crash the UID may have a name that nothing maps to,
    /// which `tsdb uid fsck fix` removes, but no name has a UID without a name. What the UID has stays if
    /// its own mapping is that of another name.
    pub(crate) async fn delete(
        &self,
        kind: UidKind,
        name: &str,
        series: &SeriesCache,
    ) -> Result<Uid, UidError> {
        let stored = Bytes::from(encode_latin1_lossy(name));
        let _change = self.begin_change(kind, stored.clone(), name)?;
        // Not that of the cache: another daemon may have changed it.
        let uid = self
            .table
            .uid(kind, &stored)
            .await?
            .ok_or_else(|| UidError::NoSuchName { kind, name: name.to_owned() })?;
        let result = async {
            self.delete_column(UidTable::forward(kind, &stored)).await?;
            let named = self.table.names(kind, &[uid]).await?.pop().flatten();
            if named.is_none_or(|named| named == stored) {
                self.table.delete_reverse(kind, Bytes::copy_from_slice(uid.as_bytes())).await?;
            }
            Ok::<_, StorageError>(())
        }
        .await;
        // After a failure it may be deleted or not, so the caches are invalidated in any case.
        let forgotten = self.forget(kind, name, vec![stored], uid, series).await;
        result?;
        forgotten.map(|()| uid)
    }

    /// Renames a UID. Not atomic: after a crash both names may have the UID.
    pub(crate) async fn rename(
        &self,
        kind: UidKind,
        old: &str,
        new: &str,
        series: &SeriesCache,
    ) -> Result<(), UidError> {
        let new_stored = self.check(kind, new)?;
        let old_stored = Bytes::from(encode_latin1_lossy(old));
        let uid = self.uid_of(kind, old).await?;
        if let Some(existing) = self.find(kind, new_stored.clone()).await? {
            return Err(UidError::NameTaken {
                kind,
                name: new.to_owned(),
                uid: existing.as_bytes().to_vec(),
            });
        }
        let _old = self.begin_change(kind, old_stored.clone(), old)?;
        let _new = self.begin_change(kind, new_stored.clone(), new)?;
        let uid_bytes = Bytes::copy_from_slice(uid.as_bytes());
        let result = async {
            self.put(UidTable::reverse(kind, uid), &new_stored).await?;
            self.put(UidTable::forward(kind, &new_stored), &uid_bytes).await?;
            self.delete_column(UidTable::forward(kind, &old_stored)).await
        }
        .await;
        // After a failure either name may be stored, so the caches are invalidated in any case.
        let forgotten = self.forget(kind, old, vec![old_stored, new_stored], uid, series).await;
        result?;
        forgotten
    }

    /// Removes what is known of changed names, `name` among them, from the caches of all nodes.
    async fn forget(
        &self,
        kind: UidKind,
        name: &str,
        names: Vec<Bytes>,
        uid: Uid,
        series: &SeriesCache,
    ) -> Result<(), UidError> {
        self.resolver.caches.invalidate(kind, &names, &[uid]);
        series.clear();
        let Some(peers) = &self.peers else { return Ok(()) };
        let forgotten = peers.forget(kind, names, vec![uid]).await;
        forgotten.map_err(|reason| {
            tracing::warn!(%kind, name, reason, "not all nodes have forgotten a changed name");
            UidError::NotForgotten { kind, name: name.to_owned(), reason }
        })
    }

    async fn find(&self, kind: UidKind, stored: Bytes) -> Result<Option<Uid>, UidError> {
        match self.resolver.look_up(kind, vec![stored]).await.pop() {
            Some((_, found)) => found,
            None => Err(UidError::Lost),
        }
    }

    /// Checks a name and encodes it as stored.
    fn check(&self, kind: UidKind, name: &str) -> Result<Bytes, UidError> {
        let role = match kind {
            UidKind::Metric => NameRole::Metric,
            UidKind::Tagk => NameRole::TagKey(""),
            UidKind::Tagv => NameRole::TagValue(""),
        };
        self.rules.rule.check(role, name).map_err(|error| match error {
            NameError::TooLong { length, .. } => UidError::NameTooLong { kind, length },
            _ => UidError::IllegalName {
                kind,
                name: name.to_owned(),
                character: self.rules.first_illegal(name),
            },
        })?;
        self.encode(kind, name)
    }

    /// Encodes a name as stored.
    fn encode(&self, kind: UidKind, name: &str) -> Result<Bytes, UidError> {
        let length = name.chars().count();
        if length > MAX_NAME_BYTES {
            return Err(UidError::NameTooLong { kind, length });
        }
        if self.rules.fold_unmappable_letters {
            return Ok(encode_latin1_lossy(name).into());
        }
        encode_latin1(name).map(Bytes::from).map_err(|error| UidError::IllegalName {
            kind,
            name: name.to_owned(),
            character: Some(error.letter),
        })
    }

    fn begin_change(
        &self,
        kind: UidKind,
        stored: Bytes,
        name: &str,
    ) -> Result<NameChange<'_>, UidError> {
        if self.changing.pin().insert((kind, stored.clone())) {
            Ok(NameChange { admin: self, key: (kind, stored) })
        } else {
            Err(UidError::BeingChanged { kind, name: name.to_owned() })
        }
    }

    async fn put(&self, column: Column, value: &Bytes) -> Result<(), StorageError> {
        let cell = CellRef {
            family: column.family,
            qualifier: &column.qualifier,
            value,
            timestamp_ms: None,
        };
        let batch = CellBatch::single(&column.row, cell)?;
        let mut pause = RENAME_PAUSE;
        for _ in 1..RENAME_ATTEMPTS {
            match self.table.storage.put(&self.table.table, batch.clone()).await {
                Err(error) if error.recovery() == Recovery::RetryLater => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                result => return result,
            }
        }
        self.table.storage.put(&self.table.table, batch).await
    }

    async fn delete_column(&self, column: Column) -> Result<(), StorageError> {
        let delete =
            Delete::Columns { row: column.row, columns: vec![(column.family, column.qualifier)] };
        self.table.storage.delete(&self.table.table, delete).await
    }
}
