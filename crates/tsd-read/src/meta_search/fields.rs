//! The fields of objects in which a search looks.

use tsd_model::{Annotation, CustomFields, NamedUidMeta, TsMeta};
use tsd_query::{SearchField, Searchable};

use crate::series_names::SeriesName;

type Visit<'v> = dyn FnMut(SearchField<'_>, &str) -> bool + 'v;

/// A series with its TSMeta and its names.
pub(super) struct SearchedSeries<'a> {
    pub(super) tsuid: &'a str,
    pub(super) meta: &'a TsMeta,
    pub(super) name: &'a SeriesName,
}

impl Searchable for SearchedSeries<'_> {
    fn any_field(&self, visit: &mut Visit<'_>) -> bool {
        let (metric, tags) = self.name;
        let meta = self.meta;
        let named = [
            ("name", metric.as_str()),
            ("metric", metric),
            ("tsuid", self.tsuid),
            ("displayName", &meta.display_name),
            ("description", &meta.description),
            ("notes", &meta.notes),
            ("units", &meta.units),
            ("dataType", &meta.data_type),
        ];
        named.into_iter().any(|(name, text)| visit(SearchField::Named(name), text))
            || tags.iter().any(|(tagk, tagv)| {
                visit(SearchField::Named("tagk"), tagk)
                    || visit(SearchField::Named("tagv"), tagv)
                    || visit(SearchField::Tag(tagk), tagv)
            })
            || any_custom(meta.custom.as_ref(), visit)
    }
}

/// A UID with its UIDMeta.
pub(super) struct SearchedName<'a>(pub(super) &'a NamedUidMeta);

impl Searchable for SearchedName<'_> {
    fn any_field(&self, visit: &mut Visit<'_>) -> bool {
        let NamedUidMeta { uid, name, meta } = self.0;
        let uid = uid.to_string();
        let named = [
            ("name", name.as_str()),
            ("uid", &uid),
            ("type", meta.kind.type_name()),
            ("displayName", &meta.display_name),
            ("description", &meta.description),
            ("notes", &meta.notes),
        ];
        named.into_iter().any(|(name, text)| visit(SearchField::Named(name), text))
            || any_custom(meta.custom.as_ref(), visit)
    }
}

/// An annotation.
pub(super) struct SearchedAnnotation<'a>(pub(super) &'a Annotation);

impl Searchable for SearchedAnnotation<'_> {
    fn any_field(&self, visit: &mut Visit<'_>) -> bool {
        let Annotation { tsuid, description, notes, custom, .. } = self.0;
        let named = [("tsuid", tsuid), ("description", description), ("notes", notes)];
        named.into_iter().any(|(name, text)| visit(SearchField::Named(name), text))
            || any_custom(custom.as_ref(), visit)
    }
}

fn any_custom(custom: Option<&CustomFields>, visit: &mut Visit<'_>) -> bool {
    custom.into_iter().flatten().any(|(key, value)| {
        visit(SearchField::Named("custom"), key)
            || visit(SearchField::Custom(key), value.as_deref().unwrap_or_default())
    })
}

/// Bytes of memory of custom fields.
pub(super) fn custom_bytes(custom: Option<&CustomFields>) -> usize {
    let field = |(key, value): &(String, Option<String>)| {
        size_of::<(String, Option<String>)>() + key.len() + value.as_ref().map_or(0, String::len)
    };
    custom.into_iter().flatten().map(field).sum()
}
