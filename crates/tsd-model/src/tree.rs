//! Trees: series sorted into branches by rules.
//!
//! A branch is identified by its path: its row key is the tree's id followed by a Java string hash of
//! every name from the root down.

mod edit;
mod stored;

pub use edit::{TreeEdit, TreeRuleEdit, TreeRuleError};
pub use stored::Tree;

use crate::{
    java_hash::java_string_hash,
    json_object::{JsonError, ObjectReader, ObjectWriter},
    tsuid::Tsuid,
};

/// Number of a tree, 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(u16);

/// Qualifier of the definition of a tree.
pub const TREE_QUALIFIER: &str = "tree";
/// Qualifier of a branch.
pub const BRANCH_QUALIFIER: &str = "branch";
const RULE_PREFIX: &str = "tree_rule:";
const LEAF_PREFIX: &[u8] = b"leaf:";
const COLLISION_PREFIX: &[u8] = b"tree_collision:";
const NOT_MATCHED_PREFIX: &[u8] = b"tree_not_matched:";

impl TreeId {
    /// The tree with this number; `None` for 0.
    #[must_use]
    pub const fn try_new(number: u16) -> Option<Self> {
        if number == 0 { None } else { Some(Self(number)) }
    }

    /// The tree with this number; `None` outside 1 to 65535.
    #[must_use]
    pub fn from_number(number: i64) -> Option<Self> {
        u16::try_from(number).ok().and_then(Self::try_new)
    }

    /// Number of the tree.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Row of the definition, the rules and the root branch.
    #[must_use]
    pub const fn row(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }

    /// Row of a branch, by the names below the root.
    #[must_use]
    pub fn branch_row<S: AsRef<str>>(self, names: &[S]) -> Vec<u8> {
        let mut row = self.row().to_vec();
        for name in names {
            row.extend_from_slice(&java_string_hash(name.as_ref()).to_be_bytes());
        }
        row
    }

    /// Row of collisions: series whose leaf was taken.
    #[must_use]
    pub const fn collisions_row(self) -> [u8; 3] {
        let [a, b] = self.row();
        [a, b, 1]
    }

    /// Row of series that no rule matched.
    #[must_use]
    pub const fn not_matched_row(self) -> [u8; 3] {
        let [a, b] = self.row();
        [a, b, 2]
    }
}

/// A column of the tree table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeColumn {
    /// The definition of the tree.
    Definition,
    /// A rule.
    Rule {
        /// Level of the tree that the rule works on.
        level: u32,
        /// Order among the rules of the level.
        order: u32,
    },
    /// A branch.
    Branch,
    /// A leaf, by the hash of its name.
    Leaf(i32),
    /// A collision, by TSUID.
    Collision(Vec<u8>),
    /// A series that no rule matched, by TSUID.
    NotMatched(Vec<u8>),
}

impl TreeColumn {
    /// The column of a leaf with this name.
    #[must_use]
    pub fn leaf(display_name: &str) -> Self {
        Self::Leaf(java_string_hash(display_name))
    }

    /// The column of a collision.
    #[must_use]
    pub fn collision(tsuid: &Tsuid) -> Self {
        Self::Collision(tsuid.as_bytes().to_vec())
    }

    /// The column of a series that no rule matched.
    #[must_use]
    pub fn not_matched(tsuid: &Tsuid) -> Self {
        Self::NotMatched(tsuid.as_bytes().to_vec())
    }

    /// The qualifier.
    #[must_use]
    pub fn qualifier(&self) -> Vec<u8> {
        match self {
            Self::Definition => TREE_QUALIFIER.into(),
            Self::Branch => BRANCH_QUALIFIER.into(),
            Self::Rule { level, order } => format!("{RULE_PREFIX}{level}:{order}").into_bytes(),
            Self::Leaf(hash) => [LEAF_PREFIX, &hash.to_be_bytes()].concat(),
            Self::Collision(tsuid) => [COLLISION_PREFIX, tsuid].concat(),
            Self::NotMatched(tsuid) => [NOT_MATCHED_PREFIX, tsuid].concat(),
        }
    }

    /// Decodes a qualifier; `None` if it is unknown.
    #[must_use]
    pub fn decode(qualifier: &[u8]) -> Option<Self> {
        if qualifier == TREE_QUALIFIER.as_bytes() {
            Some(Self::Definition)
        } else if qualifier == BRANCH_QUALIFIER.as_bytes() {
            Some(Self::Branch)
        } else if let Some(place) = qualifier.strip_prefix(RULE_PREFIX.as_bytes()) {
            let (level, order) = std::str::from_utf8(place).ok()?.split_once(':')?;
            Some(Self::Rule { level: level.parse().ok()?, order: order.parse().ok()? })
        } else if let Some(hash) = qualifier.strip_prefix(LEAF_PREFIX) {
            Some(Self::Leaf(i32::from_be_bytes(hash.try_into().ok()?)))
        } else if let Some(tsuid) = qualifier.strip_prefix(COLLISION_PREFIX) {
            Some(Self::Collision(tsuid.to_vec()))
        } else {
            let tsuid = qualifier.strip_prefix(NOT_MATCHED_PREFIX)?;
            Some(Self::NotMatched(tsuid.to_vec()))
        }
    }
}

/// Definition of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeDefinition {
    /// Name of the tree.
    pub name: String,
    /// Short text.
    pub description: String,
    /// Long text.
    pub notes: String,
    /// True if every level must match.
    pub strict_match: bool,
    /// Epoch seconds.
    pub created: i64,
    /// True if new series are added.
    pub enabled: bool,
    /// True if collisions and misses are stored.
    pub store_failures: bool,
}

impl TreeDefinition {
    /// Encodes the cell value.
    #[must_use]
    pub fn to_json(&self) -> String {
        ObjectWriter::new()
            .string("name", &self.name)
            .string("description", &self.description)
            .string("notes", &self.notes)
            .boolean("strictMatch", self.strict_match)
            .integer("created", self.created)
            .boolean("enabled", self.enabled)
            .boolean("storeFailures", self.store_failures)
            .finish()
    }

    /// Parses a cell value.
    pub fn from_json(value: &[u8]) -> Result<Self, JsonError> {
        let object = ObjectReader::new(value)?;
        Ok(Self {
            name: object.string("name")?,
            description: object.string("description")?,
            notes: object.string("notes")?,
            strict_match: object.boolean("strictMatch")?,
            created: object.integer("created")?,
            enabled: object.boolean("enabled")?,
            store_failures: object.boolean("storeFailures")?,
        })
    }
}

/// Subject of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TreeRuleKind {
    /// The metric name.
    #[default]
    Metric,
    /// A custom field of the metric.
    MetricCustom,
    /// The value of a tag.
    Tagk,
    /// A custom field of a tag key.
    TagkCustom,
    /// A custom field of a tag value.
    TagvCustom,
}

impl TreeRuleKind {
    const ALL: [Self; 5] =
        [Self::Metric, Self::MetricCustom, Self::Tagk, Self::TagkCustom, Self::TagvCustom];

    /// Name in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Metric => "METRIC",
            Self::MetricCustom => "METRIC_CUSTOM",
            Self::Tagk => "TAGK",
            Self::TagkCustom => "TAGK_CUSTOM",
            Self::TagvCustom => "TAGV_CUSTOM",
        }
    }

    /// Finds a kind by name, case-insensitively.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(name))
    }
}

/// A rule of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeRule {
    /// Subject of the rule.
    pub kind: TreeRuleKind,
    /// Name of the tag or owner of the custom field.
    pub field: String,
    /// Regular expression that extracts a part.
    pub regex: String,
    /// Separator that splits the value into several levels.
    pub separator: String,
    /// Short text.
    pub description: String,
    /// Long text.
    pub notes: String,
    /// Level of the tree.
    pub level: i64,
    /// Order within the level.
    pub order: i64,
    /// The tree.
    pub tree_id: i64,
    /// Name of the custom field.
    pub custom_field: String,
    /// Group of the expression.
    pub regex_group: i64,
    /// Format of the name of a branch.
    pub display_format: String,
}

impl TreeRule {
    /// Encodes the cell value. OpenTSDB writes the last four fields in an order that changes from
    /// process to process; this is one of the two observed.
    #[must_use]
    pub fn to_json(&self) -> String {
        ObjectWriter::new()
            .string("type", self.kind.as_str())
            .string("field", &self.field)
            .string("regex", &self.regex)
            .string("separator", &self.separator)
            .string("description", &self.description)
            .string("notes", &self.notes)
            .integer("level", self.level)
            .integer("order", self.order)
            .integer("treeId", self.tree_id)
            .string("customField", &self.custom_field)
            .integer("regexGroupIdx", self.regex_group)
            .string("displayFormat", &self.display_format)
            .finish()
    }

    /// Parses a cell value.
    pub fn from_json(value: &[u8]) -> Result<Self, JsonError> {
        let object = ObjectReader::new(value)?;
        Ok(Self {
            kind: TreeRuleKind::from_name(&object.string("type")?)
                .ok_or(JsonError::Field("type"))?,
            field: object.string("field")?,
            regex: object.string("regex")?,
            separator: object.string("separator")?,
            description: object.string("description")?,
            notes: object.string("notes")?,
            level: object.integer("level")?,
            order: object.integer("order")?,
            tree_id: object.integer("treeId")?,
            custom_field: object.string("customField")?,
            regex_group: object.integer("regexGroupIdx")?,
            display_format: object.string("displayFormat")?,
        })
    }
}

/// A branch: the names from the root down, `ROOT` first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Names from the root down.
    pub path: Vec<String>,
    /// Display name.
    pub display_name: String,
}

impl Branch {
    /// Name of every root.
    pub const ROOT: &'static str = "ROOT";

    /// Encodes the cell value.
    #[must_use]
    pub fn to_json(&self) -> String {
        ObjectWriter::new()
            .numbered("path", &self.path)
            .string("displayName", &self.display_name)
            .finish()
    }

    /// Parses a cell value.
    pub fn from_json(value: &[u8]) -> Result<Self, JsonError> {
        let object = ObjectReader::new(value)?;
        Ok(Self { path: object.numbered("path")?, display_name: object.string("displayName")? })
    }
}

/// A leaf: one series under a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Display name; its hash is the column.
    pub display_name: String,
    /// TSUID in hex.
    pub tsuid: String,
}

impl Leaf {
    /// Encodes the cell value.
    #[must_use]
    pub fn to_json(&self) -> String {
        ObjectWriter::new()
            .string("displayName", &self.display_name)
            .string("tsuid", &self.tsuid)
            .finish()
    }

    /// Parses a cell value.
    pub fn from_json(value: &[u8]) -> Result<Self, JsonError> {
        let object = ObjectReader::new(value)?;
        Ok(Self { display_name: object.string("displayName")?, tsuid: object.string("tsuid")? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tree_zero_is_none() {
        assert_eq!(TreeId::try_new(0), None);
    }

    #[test]
    fn other_columns_are_none() {
        for qualifier in [&b"trees"[..], b"leaf:123", b"tree_rule:1", b"tree_rule:a:1", b""] {
            assert_eq!(TreeColumn::decode(qualifier), None, "{qualifier:?}");
        }
    }

    proptest! {
        #[test]
        fn decode_undoes_qualifier(
            level: u32, order: u32, name: String, tsuid in prop::collection::vec(any::<u8>(), 0..30),
        ) {
            for column in [
                TreeColumn::Definition,
                TreeColumn::Branch,
                TreeColumn::Rule { level, order },
                TreeColumn::leaf(&name),
                TreeColumn::Collision(tsuid.clone()),
                TreeColumn::NotMatched(tsuid.clone()),
            ] {
                prop_assert_eq!(TreeColumn::decode(&column.qualifier()), Some(column));
            }
        }

        #[test]
        fn reading_undoes_writing(a: String, b: String, n: i64, path in prop::collection::vec(any::<String>(), 0..14)) {
            let rule = TreeRule {
                kind: TreeRuleKind::TagvCustom,
                field: a.clone(),
                regex: b.clone(),
                level: n,
                ..TreeRule::default()
            };
            prop_assert_eq!(TreeRule::from_json(rule.to_json().as_bytes()), Ok(rule));
            let branch = Branch { path, display_name: a.clone() };
            prop_assert_eq!(Branch::from_json(branch.to_json().as_bytes()), Ok(branch));
            let leaf = Leaf { display_name: a, tsuid: b };
            prop_assert_eq!(Leaf::from_json(leaf.to_json().as_bytes()), Ok(leaf));
        }

        #[test]
        fn any_bytes_read_or_err(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = TreeColumn::decode(&bytes);
            let _ = Branch::from_json(&bytes);
        }
    }
}
