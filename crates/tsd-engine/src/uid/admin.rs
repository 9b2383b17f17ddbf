//! Administration of names: look-up, suggestions, assignment, rename and delete.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use tsd_meta::{Names, UidError};
use tsd_model::{
    Family, KindUid, KnownKind, MAX_NAME_BYTES, NameError, NameRole, UID_COUNTER_ROW, Uid, UidKind,
    decode_latin1, encode_latin1, encode_latin1_lossy,
};
use tsd_storage::{BoxFuture, Recovery, RowScanner, Scan, StorageError, prefix_end};

use super::{
    NamePeers, Resolver, UidTable, UnconfirmedRemovalError,
    intent::{Finished, Intent, NameChange},
};
use crate::{ingest::NameRules, series_cache::SeriesCache};

/// Most attempts of each write of a rename or a delete.
const CHANGE_ATTEMPTS: u32 = 6;
/// Pause after the first attempt; it doubles after each further one.
const CHANGE_PAUSE: Duration = Duration::from_millis(800);

/// Operations on names, requested by clients.
#[derive(Clone, Debug)]
pub struct UidAdmin {
    pub(crate) table: UidTable,
    pub(crate) resolver: Resolver,
    pub(crate) rules: NameRules,
    /// Names that this process is changing.
    pub(crate) changing: Arc<papaya::HashSet<(UidKind, Bytes)>>,
    /// The other nodes of the cluster, whose caches must be invalidated too.
    pub(crate) peers: Option<Arc<dyn NamePeers>>,
}

/// Marks a name as being changed until the mark is dropped.
struct ChangeMark<'a> {
    admin: &'a UidAdmin,
    key: (UidKind, Bytes),
}

impl Drop for ChangeMark<'_> {
    fn drop(&mut self) {
        self.admin.changing.pin().remove(&self.key);
    }
}

/// Names with a prefix, read in batches.
pub struct Suggestions<'a> {
    admin: &'a UidAdmin,
    kind: UidKind,
    rows: Box<dyn RowScanner>,
    /// Epoch of the caches when the read began.
    epoch: u64,
    /// Most names that may follow.
    left: usize,
    is_shown: Option<ShownNames<'a>>,
}

/// Selects names by their stored bytes.
pub type ShownNames<'a> = Box<dyn Fn(&[u8]) -> bool + Send + Sync + 'a>;

impl fmt::Debug for Suggestions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suggestions").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Suggestions<'_> {
    /// The next names, in byte order; `None` at the end.
    ///
    /// # Errors
    ///
    /// An error of the storage.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<String>>, UidError> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(batch) = self.rows.next_rows().await? else { return Ok(None) };
        let UidAdmin { table, resolver, .. } = self.admin;
        let mut names = Vec::new();
        let is_shown = |name: &[u8]| self.is_shown.as_ref().is_none_or(|is_shown| is_shown(name));
        for row in batch.into_iter().filter(|row| is_shown(&row.key)).take(self.left) {
            let Some(cell) = row.cells.first() else { continue };
            if let Ok(uid) = table.uid_in(self.kind, &row.key, cell) {
                resolver.caches.insert_at(self.epoch, self.kind, &row.key, uid);
            }
            names.push(decode_latin1(&row.key));
        }
        self.left -= names.len();
        Ok(Some(names))
    }
}

impl UidAdmin {
    /// The UID table.
    #[must_use]
    pub const fn table(&self) -> &UidTable {
        &self.table
    }

    /// UID of a name.
    pub async fn uid_of(&self, kind: UidKind, name: &str) -> Result<Uid, UidError> {
        let stored = Bytes::from(encode_latin1_lossy(name));
        self.find(kind, stored)
            .await?
            .ok_or_else(|| UidError::NoSuchName { kind, name: name.to_owned() })
    }

    /// UID of a name of a known kind.
    pub async fn uid<K: KnownKind>(&self, name: &str) -> Result<KindUid<K>, UidError> {
        self.uid_of(K::KIND, name).await.map(KindUid::new)
    }

    /// UIDs of names. Reads those that are not cached in one call.
    pub async fn uids_of(
        &self,
        kind: UidKind,
        names: &[String],
    ) -> Vec<Result<Option<Uid>, UidError>> {
        let names = names.iter().map(|name| Bytes::from(encode_latin1_lossy(name))).collect();
        self.resolver.look_up(kind, names).await.into_iter().map(|(_, found)| found).collect()
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

    /// Names of UIDs. Reads those that are not cached in one call.
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

    /// At most `max` names that begin with `prefix`, in byte order.
    pub async fn suggest(
        &self,
        kind: UidKind,
        prefix: &str,
        max: usize,
    ) -> Result<Vec<String>, UidError> {
        let mut suggestions = self.suggestions(kind, prefix, max, None);
        let mut names = Vec::new();
        while let Some(batch) = suggestions.next_batch().await? {
            names.extend(batch);
        }
        Ok(names)
    }

    /// Like [`Self::suggest`], in batches, so that a caller can check its memory after each. With `is_shown`, only names
    /// for whose stored bytes it returns true.
    #[must_use]
    pub fn suggestions<'a>(
        &'a self,
        kind: UidKind,
        prefix: &str,
        max: usize,
        is_shown: Option<ShownNames<'a>>,
    ) -> Suggestions<'a> {
        let prefix = encode_latin1_lossy(prefix);
        // Names are never longer.
        let max = if prefix.len() > MAX_NAME_BYTES { 0 } else { max };
        let (start, stop) = if prefix.is_empty() {
            // Skip the row of the UID counters. Letters of other languages follow the ASCII letters.
            (b"!".to_vec(), Vec::new())
        } else {
            let stop = prefix_end(&prefix).to_vec();
            (prefix, stop)
        };
        let scan = Scan {
            start: start.into(),
            stop: stop.into(),
            family: Some(Family::Id),
            qualifier: Some(Bytes::from_static(kind.as_str().as_bytes())),
            limit: is_shown.is_none().then_some(max),
            ..Scan::default()
        };
        let epoch = self.resolver.caches.epoch();
        let rows = self.table.storage.scan(&self.table.table, scan);
        Suggestions { admin: self, kind, rows, epoch, left: max, is_shown }
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

    /// UID of a name; assigns a UID to a new name. Like OpenTSDB's command line, it accepts every name that can be
    /// stored: it checks neither the characters of the name nor the UID filter.
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

    /// Deletes a name with both mappings and its UIDMeta, and returns its UID. The points of the name become orphans.
    ///
    /// If the UID is mapped to another name, that mapping and the UIDMeta stay.
    pub(crate) async fn delete(
        &self,
        kind: UidKind,
        name: &str,
        series: &SeriesCache,
    ) -> Result<Uid, UidError> {
        self.finish_changes(series).await?;
        let stored = Bytes::from(encode_latin1_lossy(name));
        let _change = self.begin_change(kind, stored.clone(), name)?;
        let uid = self.stored_uid(kind, &stored, name).await?;
        let intent = Intent { kind, uid, change: NameChange::Delete { name: stored } };
        self.make(&intent, name, series).await.map(|_| uid)
    }

    /// Renames a UID. After a crash it has one of the two names, and the next start finishes the rename.
    pub(crate) async fn rename(
        &self,
        kind: UidKind,
        old: &str,
        new: &str,
        series: &SeriesCache,
    ) -> Result<(), UidError> {
        let to = self.check(kind, new)?;
        let from = Bytes::from(encode_latin1_lossy(old));
        self.finish_changes(series).await?;
        let uid = self.stored_uid(kind, &from, old).await?;
        let taken =
            |uid: &[u8]| UidError::NameTaken { kind, name: new.to_owned(), uid: uid.to_vec() };
        if let Some(existing) = self.table.uid(kind, &to).await? {
            return Err(taken(existing.as_bytes()));
        }
        let _old = self.begin_change(kind, from.clone(), old)?;
        let _new = self.begin_change(kind, to.clone(), new)?;
        let named = self.table.value(UidTable::reverse(kind, uid)).await?;
        let intent = Intent { kind, uid, change: NameChange::Rename { from, to, named } };
        match self.make(&intent, old, series).await? {
            Finished::Made => Ok(()),
            Finished::Taken(existing) => Err(taken(&existing)),
        }
    }

    /// Reads the UID of a name from the store, because another daemon may have changed it since it was cached.
    async fn stored_uid(&self, kind: UidKind, stored: &Bytes, name: &str) -> Result<Uid, UidError> {
        let uid = self.table.uid(kind, stored).await?;
        uid.ok_or_else(|| UidError::NoSuchName { kind, name: name.to_owned() })
    }

    /// Makes a change of names: stores its intent, then finishes it.
    async fn make(
        &self,
        intent: &Intent,
        name: &str,
        series: &SeriesCache,
    ) -> Result<Finished, UidError> {
        let kind = intent.kind;
        if !retried(|| self.table.store_intent(intent)).await? {
            return Err(UidError::BeingChanged { kind, name: name.to_owned() });
        }
        let finished = retried(|| self.table.finish_intent(intent)).await;
        // After a failure the change may have taken effect, so the caches are invalidated in any case.
        let forgotten = self.forget(intent, name, series).await;
        let finished = finished?;
        forgotten.map(|()| finished)
    }

    /// Finishes interrupted changes, of this daemon and of others. Returns the changes that it finished.
    pub(crate) async fn finish_changes(
        &self,
        series: &SeriesCache,
    ) -> Result<Vec<Intent>, UidError> {
        let mut finished = Vec::new();
        for intent in self.table.intents().await?.found {
            if self.is_changing(&intent) {
                continue;
            }
            let outcome = self.table.finish_intent(&intent).await?;
            tracing::info!(change = %intent, ?outcome, "finished an interrupted change of a name");
            let name = intent.names().first().map(|name| decode_latin1(name)).unwrap_or_default();
            self.forget(&intent, &name, series).await?;
            finished.push(intent);
        }
        Ok(finished)
    }

    /// True if this process is making the change now.
    fn is_changing(&self, intent: &Intent) -> bool {
        let changing = self.changing.pin();
        intent.names().into_iter().any(|name| changing.contains(&(intent.kind, name)))
    }

    /// Removes changed names, `name` among them, and their UID from the caches of all nodes.
    async fn forget(
        &self,
        intent: &Intent,
        name: &str,
        series: &SeriesCache,
    ) -> Result<(), UidError> {
        let (Intent { kind, uid, .. }, names) = (intent, intent.names());
        let (kind, uid) = (*kind, *uid);
        self.resolver.caches.invalidate(kind, &names, &[uid]);
        series.clear();
        let Some(peers) = &self.peers else { return Ok(()) };
        let forgotten = peers.forget(kind, names, vec![uid]).await;
        forgotten.map_err(|UnconfirmedRemovalError(reason)| {
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
    ) -> Result<ChangeMark<'_>, UidError> {
        if self.changing.pin().insert((kind, stored.clone())) {
            Ok(ChangeMark { admin: self, key: (kind, stored) })
        } else {
            Err(UidError::BeingChanged { kind, name: name.to_owned() })
        }
    }
}

impl Names for UidAdmin {
    fn uid_of<'a>(&'a self, kind: UidKind, name: &'a str) -> BoxFuture<'a, Result<Uid, UidError>> {
        Box::pin(self.uid_of(kind, name))
    }

    fn uids_of<'a>(
        &'a self,
        kind: UidKind,
        names: &'a [String],
    ) -> BoxFuture<'a, Vec<Result<Option<Uid>, UidError>>> {
        Box::pin(self.uids_of(kind, names))
    }

    fn names_of<'a>(
        &'a self,
        kind: UidKind,
        uids: &'a [Uid],
    ) -> BoxFuture<'a, Result<Vec<Option<String>>, UidError>> {
        Box::pin(self.names_of(kind, uids))
    }

    fn used(&self, kind: UidKind) -> BoxFuture<'_, Result<i64, StorageError>> {
        Box::pin(self.table.used(kind))
    }

    fn epoch(&self) -> u64 {
        self.resolver.caches.epoch()
    }
}

/// Retries a write while the store is expected to accept it later.
async fn retried<T, F: Future<Output = Result<T, StorageError>>>(
    write: impl Fn() -> F,
) -> Result<T, StorageError> {
    let mut pause = CHANGE_PAUSE;
    for _ in 1..CHANGE_ATTEMPTS {
        match write().await {
            Err(error) if error.recovery() == Recovery::RetryLater => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            result => return result,
        }
    }
    write().await
}
