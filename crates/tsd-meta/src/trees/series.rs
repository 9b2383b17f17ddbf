//! A series in the form that the rules of trees use: its names, and their custom fields.

use tsd_model::CustomFields;

/// Names of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeSeries {
    /// TSUID in hex.
    pub(crate) tsuid: String,
    pub(crate) metric: TreeName,
    /// Key and value of each tag, ordered by the UIDs of the keys.
    pub(crate) tags: Vec<(TreeName, TreeName)>,
}

/// A name with the custom fields of its UIDMeta.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeName {
    pub(crate) name: String,
    /// `None` for a name without custom fields, or if no rule needs them.
    pub(crate) custom: Option<CustomFields>,
}

impl TreeName {
    /// The value of a custom field; `None` if it is absent or null.
    pub(crate) fn custom_field(&self, field: &str) -> Option<&str> {
        let fields = self.custom.as_ref()?;
        fields.iter().find(|(name, _)| name == field)?.1.as_deref()
    }
}
