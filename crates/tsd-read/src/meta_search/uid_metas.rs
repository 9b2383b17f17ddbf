//! Searches of UIDMeta.

use tsd_meta::{cell_of, named_uid_meta};
use tsd_model::{Family, NamedUidMeta, Row, Uid, UidKind};
use tsd_storage::Scan;

use super::{
    fields::{SearchedName, custom_bytes},
    page::{BATCH_ROWS, MetaSearch, OBJECT_BYTES, PageCounter, SearchPage, SearchResult},
};
use crate::{
    query::{QueryContext, QueryFailure},
    read_shared::ReadShared,
};

/// Finds stored UIDMeta that match, in the order of their UIDs.
pub(super) async fn find(
    shared: &ReadShared,
    context: &QueryContext,
    search: &MetaSearch,
) -> Result<SearchResult, QueryFailure> {
    let mut counter = PageCounter::new(search);
    let mut page = Vec::new();
    let scan = Scan { family: Some(Family::Name), batch_rows: Some(BATCH_ROWS), ..Scan::default() };
    context.add_scans(1);
    let _open = context.acquire_scan_permit().await;
    let mut rows = shared.storage.scan(&shared.tables.uid, scan);
    while let Some(batch) = rows.next_rows().await? {
        context.record_rows(batch.len() as u64, 0, 0);
        let slice = context.time_slice().await?;
        for object in batch.iter().flat_map(|row| objects_of(shared, row)) {
            if search.text.matches(&SearchedName(&object)) && counter.count() {
                context.reserve(bytes_of(&object))?;
                page.push(object);
            }
        }
        slice.finish();
    }
    context.finish_scan();
    Ok(SearchResult { page: SearchPage::UidMetas(page), total: counter.matches })
}

/// The stored UIDMeta of a row that have names.
fn objects_of<'a>(shared: &'a ReadShared, row: &'a Row) -> impl Iterator<Item = NamedUidMeta> + 'a {
    UidKind::ALL.into_iter().filter_map(move |kind| {
        cell_of(row, kind.meta_qualifier())?;
        cell_of(row, kind.as_str())?;
        let uid = Uid::with_width(&row.key, kind.width(&shared.schema)).ok()?;
        match named_uid_meta(kind, uid, Some(row)) {
            Ok((object, _)) => Some(object),
            Err(error) => {
                tracing::warn!(%error, %kind, %uid, "ignored an invalid stored UIDMeta");
                None
            }
        }
    })
}

/// Bytes of memory of a UIDMeta.
pub(super) fn bytes_of(object: &NamedUidMeta) -> usize {
    let meta = &object.meta;
    let texts = [&object.name, &meta.display_name, &meta.description, &meta.notes];
    OBJECT_BYTES
        + texts.iter().map(|text| text.len()).sum::<usize>()
        + custom_bytes(meta.custom.as_ref())
}
