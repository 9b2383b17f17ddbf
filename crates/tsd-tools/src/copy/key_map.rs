//! Translates keys of one store to keys of another: replaces each UID by the UID of its name there.
//!
//! The UIDs for a batch of rows are looked up at once; then rows are translated without I/O. A row whose key cannot be
//! translated is reported with the reason. Cells are always kept: if the value of a cell names a series by a TSUID
//! that cannot be translated, the cell stays as it is.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tsd_engine::EngineHandle;
use tsd_meta::UidError;
use tsd_model::{
    Annotation, Cell, ColumnKind, KindUid, KnownKind, Leaf, MetricUid, RowKey, SeriesKey,
    TS_META_QUALIFIER, TableSchema, TagkUid, TagvUid, TreeColumn, TsMeta, Tsuid, Uid, UidKind,
    from_hex, to_hex,
};

use super::{error::CopyError, options::CopiedKind};

/// Most translated UIDs that are cached; a full cache is cleared.
const MAX_CACHED: usize = 1 << 20;
/// Names that are assigned concurrently.
const CONCURRENT_NAMES: usize = 256;

type UidOf = (UidKind, Uid);
type TagPairs = Vec<(TagkUid, TagvUid)>;

/// Translates UIDs of one store to those of another.
pub(super) struct KeyMap {
    from: EngineHandle,
    to: EngineHandle,
    cache: Mutex<BTreeMap<UidOf, Uid>>,
}

/// Cause why a key or a reference has no translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Untranslated {
    /// The bytes are not a key.
    Damaged(String),
    /// A UID has no name, or a name that cannot be stored.
    Unnamed(String),
    /// The other store does not have the name.
    Absent(String),
}

impl Untranslated {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Damaged(text) | Self::Unnamed(text) | Self::Absent(text) => text,
        }
    }
}

/// A row under its new key.
#[derive(Clone, Debug)]
pub(super) struct TranslatedRow {
    pub(super) key: Bytes,
    pub(super) cells: Vec<Cell>,
    /// Cells whose reference to a series was not translated, with the reason.
    pub(super) stale: Vec<(Bytes, Untranslated)>,
}

/// The UIDs that a batch of rows needs.
pub(super) struct BatchKeys {
    from: TableSchema,
    to: TableSchema,
    uids: BTreeMap<UidOf, Result<Uid, Untranslated>>,
}

impl KeyMap {
    pub(super) fn new(from: EngineHandle, to: EngineHandle) -> Self {
        Self { from, to, cache: Mutex::default() }
    }

    /// Looks up the UIDs that the rows of a table need. With `assigns`, assigns names that the other store lacks.
    pub(super) async fn batch<'r>(
        &self,
        kind: CopiedKind,
        assigns: bool,
        rows: impl Iterator<Item = (&'r Bytes, &'r [Cell])> + Send,
    ) -> Result<BatchKeys, CopyError> {
        let schema = self.from.config().schema;
        let mut wanted = BTreeSet::new();
        for (key, cells) in rows {
            add_key(schema, kind, key, &mut wanted);
            for cell in cells {
                if let Some(series) = referenced_series(kind, cell) {
                    add_tsuid(schema, &series.bytes, &mut wanted);
                    add_tsuid(schema, &collided_series(cell), &mut wanted);
                }
            }
        }
        let uids = self.look_up(wanted, assigns).await?;
        Ok(BatchKeys { from: schema, to: self.to.config().schema, uids })
    }

    /// The UIDs of the other store.
    pub(super) async fn look_up(
        &self,
        wanted: BTreeSet<UidOf>,
        assigns: bool,
    ) -> Result<BTreeMap<UidOf, Result<Uid, Untranslated>>, CopyError> {
        let mut found = BTreeMap::new();
        for kind in UidKind::ALL {
            let of_kind = wanted.iter().filter(|(of, _)| *of == kind).map(|(_, uid)| *uid);
            let mut uids: Vec<Uid> = of_kind.collect();
            {
                let cache = self.cache.lock();
                uids.retain(|uid| {
                    let cached = cache.get(&(kind, *uid)).copied();
                    found.extend(cached.map(|to| ((kind, *uid), Ok(to))));
                    cached.is_none()
                });
            }
            if !uids.is_empty() {
                self.look_up_kind(kind, uids, assigns, &mut found).await?;
            }
        }
        Ok(found)
    }

    async fn look_up_kind(
        &self,
        kind: UidKind,
        uids: Vec<Uid>,
        assigns: bool,
        found: &mut BTreeMap<UidOf, Result<Uid, Untranslated>>,
    ) -> Result<(), CopyError> {
        let names = self.from.uids().names_of(kind, &uids).await;
        let names = names.map_err(|source| CopyError::Uid {
            side: format!("the names of the source's UIDs ({kind})"),
            source,
        })?;
        let (mut named, mut known) = (Vec::new(), Vec::new());
        for (uid, name) in uids.into_iter().zip(names) {
            if let Some(name) = name {
                named.push(uid);
                known.push(name);
            } else {
                let text = format!("{kind} UID {} has no name", to_hex(uid.as_bytes()));
                found.insert((kind, uid), Err(Untranslated::Unnamed(text)));
            }
        }
        let existing = self.to.uids().uids_of(kind, &known).await;
        let mut new = Vec::new();
        let mut translated = Vec::new();
        for ((uid, name), existing) in named.into_iter().zip(known).zip(existing) {
            match existing.map_err(|source| target_error(kind, &name, source))? {
                Some(to) => translated.push((uid, to)),
                None if assigns => new.push((uid, name)),
                None => {
                    let text = format!("the target has no {kind} name '{name}'");
                    found.insert((kind, uid), Err(Untranslated::Absent(text)));
                }
            }
        }
        let assigned = stream::iter(new).map(|(uid, name): (Uid, String)| async move {
            let assigned = self.to.uids().get_or_assign(kind, &name).await;
            (uid, name, assigned)
        });
        let mut assigned = std::pin::pin!(assigned.buffer_unordered(CONCURRENT_NAMES));
        while let Some((uid, name, result)) = assigned.next().await {
            match result {
                Ok(to) => translated.push((uid, to)),
                Err(error @ (UidError::IllegalName { .. } | UidError::NameTooLong { .. })) => {
                    found.insert((kind, uid), Err(Untranslated::Unnamed(error.to_string())));
                }
                Err(source) => return Err(target_error(kind, &name, source)),
            }
        }
        let mut cache = self.cache.lock();
        if cache.len() + translated.len() > MAX_CACHED {
            cache.clear();
        }
        for (uid, to) in translated {
            cache.insert((kind, uid), to);
            found.insert((kind, uid), Ok(to));
        }
        Ok(())
    }
}

fn target_error(kind: UidKind, name: &str, source: UidError) -> CopyError {
    CopyError::Uid { side: format!("the target's UID of the {kind} name '{name}'"), source }
}

/// Adds the UIDs of a row key.
fn add_key(schema: TableSchema, kind: CopiedKind, key: &[u8], wanted: &mut BTreeSet<UidOf>) {
    if kind == CopiedKind::Meta {
        add_tsuid(schema, key, wanted);
    } else if kind.has_row_keys()
        && let Ok(key) = RowKey::decode(&schema, key)
        && !key.is_global()
    {
        wanted.extend(series_uids(key.metric_uid(), key.tags()));
    }
}

fn add_tsuid(schema: TableSchema, tsuid: &[u8], wanted: &mut BTreeSet<UidOf>) {
    if let Some((metric, tags)) = split_tsuid(schema, tsuid) {
        wanted.extend(series_uids(metric, tags.into_iter()));
    }
}

/// Metric and tags of a TSUID.
fn split_tsuid(schema: TableSchema, tsuid: &[u8]) -> Option<(MetricUid, TagPairs)> {
    Tsuid::try_new(&schema, tsuid).ok()?;
    let (metric, tags) = tsuid.split_at_checked(schema.metric_width())?;
    let pairs = tags.chunks_exact(schema.tag_pair_width()).map(|pair| {
        let (tagk, tagv) = pair.split_at_checked(schema.tagk_width())?;
        Some((TagkUid::try_new(tagk).ok()?, TagvUid::try_new(tagv).ok()?))
    });
    Some((MetricUid::try_new(metric).ok()?, pairs.collect::<Option<_>>()?))
}

/// A series that a cell names outside of its row key.
struct SeriesReference {
    bytes: Vec<u8>,
    /// Spelling in the JSON of the value; `None` if the reference is in the qualifier.
    text: Option<String>,
}

/// The series that a cell names.
fn referenced_series(kind: CopiedKind, cell: &Cell) -> Option<SeriesReference> {
    let of_text = |text: String| {
        let bytes = from_hex(text.as_bytes()).unwrap_or_default();
        (!text.is_empty()).then_some(SeriesReference { bytes, text: Some(text) })
    };
    match kind {
        CopiedKind::Data if ColumnKind::of(&cell.qualifier) == ColumnKind::Annotation => {
            of_text(Annotation::from_json(&cell.value).ok()?.tsuid)
        }
        CopiedKind::Meta if cell.qualifier == TS_META_QUALIFIER.as_bytes() => {
            of_text(TsMeta::from_json(&cell.value).ok()?.tsuid)
        }
        CopiedKind::Tree => match TreeColumn::decode(&cell.qualifier)? {
            TreeColumn::Leaf(_) => of_text(Leaf::from_json(&cell.value).ok()?.tsuid),
            TreeColumn::Collision(bytes) | TreeColumn::NotMatched(bytes) => {
                Some(SeriesReference { bytes, text: None })
            }
            TreeColumn::Definition | TreeColumn::Rule { .. } | TreeColumn::Branch => None,
        },
        _ => None,
    }
}

/// The TSUID in the value of a collision, which is that of the series that has the leaf.
fn collided_series(cell: &Cell) -> Vec<u8> {
    match TreeColumn::decode(&cell.qualifier) {
        Some(TreeColumn::Collision(_)) => from_hex(&cell.value).unwrap_or_default(),
        _ => Vec::new(),
    }
}

impl BatchKeys {
    /// Translates a row.
    pub(super) fn row(
        &self,
        kind: CopiedKind,
        key: &Bytes,
        cells: Vec<Cell>,
    ) -> Result<TranslatedRow, Untranslated> {
        let key = match kind {
            CopiedKind::Data | CopiedKind::Rollup => self.row_key(key)?,
            CopiedKind::Meta => Bytes::copy_from_slice(self.tsuid(key)?.as_bytes()),
            CopiedKind::Tree | CopiedKind::Uid => key.clone(),
        };
        let mut row =
            TranslatedRow { key, cells: Vec::with_capacity(cells.len()), stale: Vec::new() };
        for cell in cells {
            let translated = match referenced_series(kind, &cell) {
                Some(series) => self.cell(&cell, &series),
                None => Ok(cell.clone()),
            };
            row.cells.push(translated.unwrap_or_else(|why| {
                row.stale.push((cell.qualifier.clone(), why));
                cell
            }));
        }
        // A translated qualifier may belong at another place in the order.
        row.cells.sort_by(|a, b| (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier)));
        Ok(row)
    }

    fn row_key(&self, bytes: &Bytes) -> Result<Bytes, Untranslated> {
        let key = RowKey::decode(&self.from, bytes)
            .map_err(|error| Untranslated::Damaged(format!("its key is damaged: {error}")))?;
        if key.is_global() {
            if key.metric().iter().any(|byte| *byte != 0) {
                return Err(Untranslated::Damaged("its key has no tags".to_owned()));
            }
            return Ok(SeriesKey::global_annotations(&self.to).row_key(key.base_time()));
        }
        Ok(self.series(key.metric_uid(), key.tags())?.row_key(key.base_time()))
    }

    fn tsuid(&self, bytes: &[u8]) -> Result<Tsuid, Untranslated> {
        let damaged = || Untranslated::Damaged(format!("{} is no TSUID", to_hex(bytes)));
        let (metric, tags) = split_tsuid(self.from, bytes).ok_or_else(damaged)?;
        Ok(self.series(metric, tags.into_iter())?.tsuid())
    }

    fn series(
        &self,
        metric: MetricUid,
        tags: impl Iterator<Item = (TagkUid, TagvUid)>,
    ) -> Result<SeriesKey, Untranslated> {
        let metric = self.uid(metric)?;
        let tags: TagPairs = tags
            .map(|(tagk, tagv)| Ok((self.uid(tagk)?, self.uid(tagv)?)))
            .collect::<Result<_, Untranslated>>()?;
        SeriesKey::try_new(&self.to, metric, &tags)
            .map_err(|error| Untranslated::Damaged(error.to_string()))
    }

    /// The UID of the same name in the other store.
    fn uid<K: KnownKind>(&self, uid: KindUid<K>) -> Result<KindUid<K>, Untranslated> {
        let found = self.uids.get(&(K::KIND, uid.uid())).cloned();
        let missing = || Err(Untranslated::Damaged(format!("{} UID {uid}", K::KIND)));
        found.unwrap_or_else(missing).map(KindUid::new)
    }

    /// Translates a cell that names another series.
    fn cell(&self, cell: &Cell, series: &SeriesReference) -> Result<Cell, Untranslated> {
        let tsuid = self.tsuid(&series.bytes)?;
        let Some(text) = &series.text else {
            return self.tree_cell(cell, &tsuid);
        };
        let value = replace_tsuid(&cell.value, text, &tsuid.to_string());
        let failed = || Untranslated::Damaged("its TSUID is spelled in another way".to_owned());
        Ok(Cell { value: value.ok_or_else(failed)?.into(), ..cell.clone() })
    }

    /// Translates a column of a tree with a TSUID in its qualifier. The value of a collision is a TSUID too.
    fn tree_cell(&self, cell: &Cell, tsuid: &Tsuid) -> Result<Cell, Untranslated> {
        let mut cell = cell.clone();
        match TreeColumn::decode(&cell.qualifier) {
            Some(TreeColumn::Collision(_)) => {
                cell.value = self.tsuid(&collided_series(&cell))?.to_string().into();
                cell.qualifier = TreeColumn::collision(tsuid).qualifier().into();
            }
            Some(TreeColumn::NotMatched(_)) => {
                cell.qualifier = TreeColumn::not_matched(tsuid).qualifier().into();
            }
            _ => {}
        }
        Ok(cell)
    }
}

/// Replaces the value of `tsuid` in an object and leaves all other bytes unchanged; `None` if the object has no such
/// value.
fn replace_tsuid(json: &[u8], old: &str, new: &str) -> Option<Vec<u8>> {
    const FIELD: &[u8] = b"\"tsuid\"";
    let quoted = format!("\"{old}\"");
    let field = find(json, FIELD)? + FIELD.len();
    let rest = json.get(field..)?;
    let at = field + find(rest, quoted.as_bytes())?;
    // Only a colon and blanks may be between a field and its value.
    let between = json.get(field..at)?;
    if !between.iter().all(|byte| *byte == b':' || byte.is_ascii_whitespace()) {
        return None;
    }
    let (before, after) = (json.get(..at)?, json.get(at + quoted.len()..)?);
    Some([before, format!("\"{new}\"").as_bytes(), after].concat())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The UID kinds of a series in the order of its key.
fn series_uids(
    metric: MetricUid,
    tags: impl Iterator<Item = (TagkUid, TagvUid)>,
) -> impl Iterator<Item = UidOf> {
    let tags =
        tags.flat_map(|(tagk, tagv)| [(TagkUid::KIND, tagk.uid()), (TagvUid::KIND, tagv.uid())]);
    std::iter::once((MetricUid::KIND, metric.uid())).chain(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_field_of_the_series_is_replaced() {
        let replace = |json: &str| {
            let replaced = replace_tsuid(json.as_bytes(), "0A", "00000B");
            replaced.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let value = r#"{"tsuid":"0A","description":"0A","x":1}"#;
        assert_eq!(
            replace(value).as_deref(),
            Some(r#"{"tsuid":"00000B","description":"0A","x":1}"#)
        );
        let spaced = "{ \"notes\": \"0A\", \"tsuid\" : \"0A\" }";
        let expected = "{ \"notes\": \"0A\", \"tsuid\" : \"00000B\" }";
        assert_eq!(replace(spaced).as_deref(), Some(expected));
        assert_eq!(replace(r#"{"tsuid":"\u0030A","notes":"0A"}"#), None);
        assert_eq!(replace(r#"{"notes":"0A"}"#), None);
    }
}
