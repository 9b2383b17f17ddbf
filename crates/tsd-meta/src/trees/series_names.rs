//! Reads names of series for the rules of trees, some hundred series at a time.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tsd_model::{Tsuid, Uid, UidKind};

use super::{
    TreeError, Trees,
    series::{TreeName, TreeSeries},
};
use crate::meta_objects::{MetaError, named_uid_meta, uid_meta_get, uids_of_series};

/// UIDs per read of the UID table.
const UIDS_PER_READ: usize = 1_024;

type FoundNames = BTreeMap<(UidKind, Uid), TreeName>;

impl Trees {
    /// Names of series, in the order of `tsuids`; `None` for a TSUID that is invalid or has an unnamed UID. Custom
    /// fields are read from the storage; names may come from a cache.
    pub(super) async fn series(
        &self,
        tsuids: &[Bytes],
        with_custom_fields: bool,
    ) -> Result<Vec<Option<TreeSeries>>, TreeError> {
        let uids: Vec<Option<Vec<(UidKind, Uid)>>> = tsuids
            .iter()
            .map(|tsuid| {
                let tsuid = Tsuid::try_new(self.meta.schema(), tsuid).ok()?;
                Some(uids_of_series(*self.meta.schema(), tsuid.as_bytes()))
            })
            .collect();
        let distinct: BTreeSet<(UidKind, Uid)> = uids.iter().flatten().flatten().copied().collect();
        let distinct: Vec<(UidKind, Uid)> = distinct.into_iter().collect();
        let mut names = FoundNames::new();
        for chunk in distinct.chunks(UIDS_PER_READ) {
            if with_custom_fields {
                self.read_names(chunk, &mut names).await?;
            } else {
                self.look_up_names(chunk, &mut names).await?;
            }
        }
        let series = uids.into_iter().zip(tsuids).map(|(uids, tsuid)| {
            let mut found = uids?.into_iter().map(|uid| names.get(&uid).cloned());
            let metric = found.next()??;
            let mut tags = Vec::new();
            while let Some(tagk) = found.next() {
                tags.push((tagk?, found.next()??));
            }
            Some(TreeSeries { tsuid: tsd_model::to_hex(tsuid), metric, tags })
        });
        Ok(series.collect())
    }

    /// Looks names up in the caches, then in the table.
    async fn look_up_names(
        &self,
        uids: &[(UidKind, Uid)],
        names: &mut FoundNames,
    ) -> Result<(), TreeError> {
        for kind in UidKind::ALL {
            let of_kind: Vec<Uid> =
                uids.iter().filter(|(of, _)| *of == kind).map(|(_, uid)| *uid).collect();
            let found = self.meta.names.names_of(kind, &of_kind).await?;
            for (uid, name) in of_kind.into_iter().zip(found) {
                if let Some(name) = name {
                    names.insert((kind, uid), TreeName { name, custom: None });
                }
            }
        }
        Ok(())
    }

    /// Reads names with the custom fields of their UIDMeta.
    async fn read_names(
        &self,
        uids: &[(UidKind, Uid)],
        names: &mut FoundNames,
    ) -> Result<(), TreeError> {
        let gets = uids.iter().map(|(kind, uid)| uid_meta_get(*kind, *uid)).collect();
        let rows = self.storage().multi_get(&self.meta.uid_table, gets).await?;
        for ((kind, uid), row) in uids.iter().zip(rows) {
            match named_uid_meta(*kind, *uid, row.as_ref()) {
                Ok((found, _)) => {
                    let name = TreeName { name: found.name, custom: found.meta.custom };
                    names.insert((*kind, *uid), name);
                }
                Err(MetaError::NoSuchUid { .. }) => {}
                Err(error) => tracing::warn!(%kind, %uid, %error, "a UIDMeta was not read"),
            }
        }
        Ok(())
    }
}
