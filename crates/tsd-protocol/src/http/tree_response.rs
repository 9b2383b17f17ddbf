//! Responses about trees, with OpenTSDB's order of fields.

use tsd_model::{Branch, Tree, TreeId, TreeRule, sort_as_sized_hash_map, to_hex};

use crate::json::{JsonObject, write_json_list, write_json_string};

/// A leaf of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedLeaf {
    /// Metric; empty in a test.
    pub metric: String,
    /// Tags; `None` in a test.
    pub tags: Option<Vec<(String, String)>>,
    /// TSUID in hex.
    pub tsuid: String,
    /// Display name.
    pub display_name: String,
}

/// Branch and leaf that a test of a series results in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestedPath {
    /// Names of the branches below the root, top down.
    pub branches: Vec<String>,
    /// The leaf; belongs to the root if there are no branches.
    pub leaf: Option<ListedLeaf>,
}

/// Result of a test of one series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeTestResult {
    /// The rendered TSMeta; `None` if it is unknown.
    pub meta: Option<Vec<u8>>,
    /// Messages of the rules.
    pub messages: Vec<String>,
    /// Resulting branch and leaf; `None` if the rules were not applied.
    pub place: Option<TestedPath>,
}

/// Renders a tree.
#[must_use]
pub fn render_tree(tree: &Tree) -> Vec<u8> {
    let mut out = Vec::new();
    write_tree(&mut out, tree);
    out
}

/// Renders an array of trees.
#[must_use]
pub fn render_trees(trees: &[Tree]) -> Vec<u8> {
    let mut out = Vec::new();
    write_json_list(&mut out, trees, write_tree);
    out
}

/// Renders a rule.
#[must_use]
pub fn render_tree_rule(rule: &TreeRule) -> Vec<u8> {
    let mut out = Vec::new();
    write_rule(&mut out, rule);
    out
}

/// Renders a branch with its leaves and its direct child branches, sorted by name.
#[must_use]
pub fn render_branch(
    tree: TreeId,
    branch: &Branch,
    mut leaves: Vec<ListedLeaf>,
    mut children: Vec<Branch>,
) -> Vec<u8> {
    leaves.sort_by_cached_key(|leaf| sort_key(&leaf.display_name));
    children.sort_by_cached_key(|child| sort_key(&child.display_name));
    let mut out = Vec::new();
    open_branch(&mut out, &leaves);
    if children.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        write_json_list(&mut out, &children, |out, child| {
            open_branch(out, &[]);
            out.extend_from_slice(b"null");
            close_branch(out, tree, &child.path, &child.display_name);
        });
    }
    close_branch(&mut out, tree, &branch.path, &branch.display_name);
    out
}

/// Renders collisions or misses: a text for each TSUID.
#[must_use]
pub fn render_tree_failures(mut failures: Vec<(String, String)>) -> Vec<u8> {
    sort_as_sized_hash_map(&mut failures, |(tsuid, _)| tsuid);
    let mut out = Vec::new();
    let mut object = JsonObject::open(&mut out);
    for (tsuid, text) in &failures {
        object.string(tsuid, text);
    }
    object.close();
    out
}

/// Writes the results of a test.
#[derive(Debug)]
pub struct TreeTestWriter {
    tree: TreeId,
    out: Vec<u8>,
}

impl TreeTestWriter {
    /// Starts a response.
    #[must_use]
    pub fn new(tree: TreeId) -> Self {
        Self { tree, out: vec![b'{'] }
    }

    /// Returns the TSUIDs without repetition, in the order of the response.
    #[must_use]
    pub fn order(mut tsuids: Vec<String>) -> Vec<String> {
        tsuids.sort_unstable();
        tsuids.dedup();
        sort_as_sized_hash_map(&mut tsuids, |tsuid| tsuid);
        tsuids
    }

    /// Bytes written so far.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.out.len()
    }

    /// Adds the result of a series.
    pub fn add(&mut self, tsuid: &str, result: &TreeTestResult) {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        write_json_string(&mut self.out, tsuid);
        self.out.push(b':');
        let mut object = JsonObject::open(&mut self.out);
        let meta = result.meta.as_deref().unwrap_or(b"null");
        object.key("meta").extend_from_slice(meta);
        object.strings("messages", &result.messages);
        let out = object.key("branch");
        match &result.place {
            Some(place) => write_place(out, self.tree, place),
            None => out.extend_from_slice(b"null"),
        }
        object.close();
    }

    /// Completes the response.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }
}

fn write_tree(out: &mut Vec<u8>, tree: &Tree) {
    let definition = &tree.definition;
    let mut object = JsonObject::open(out);
    object
        .string("name", &definition.name)
        .string("description", &definition.description)
        .string("notes", &definition.notes)
        .literal("enabled", definition.enabled);
    let rules = object.key("rules");
    if tree.rules.is_empty() {
        rules.extend_from_slice(b"null");
    } else {
        write_rules(rules, tree);
    }
    object
        .literal("created", definition.created)
        .literal("treeId", tree.id.number())
        .literal("strictMatch", definition.strict_match)
        .literal("storeFailures", definition.store_failures)
        .close();
}

/// Writes rules by level, then by order.
fn write_rules(out: &mut Vec<u8>, tree: &Tree) {
    let mut levels = JsonObject::open(out);
    let mut rules = tree.rules.iter().peekable();
    while let Some(&(&(level, _), _)) = rules.peek() {
        let mut orders = JsonObject::open(levels.key(&level.to_string()));
        while let Some(((_, order), rule)) = rules.next_if(|((of, _), _)| *of == level) {
            write_rule(orders.key(&order.to_string()), rule);
        }
        orders.close();
    }
    levels.close();
}

/// Writes a rule. OpenTSDB writes the last four fields in varying order; this is one of them.
fn write_rule(out: &mut Vec<u8>, rule: &TreeRule) {
    JsonObject::open(out)
        .string("type", rule.kind.as_str())
        .string("field", &rule.field)
        .string("regex", &rule.regex)
        .string("separator", &rule.separator)
        .string("description", &rule.description)
        .string("notes", &rule.notes)
        .literal("level", rule.level)
        .literal("order", rule.order)
        .literal("treeId", rule.tree_id)
        .string("customField", &rule.custom_field)
        .literal("regexGroupIdx", rule.regex_group)
        .string("displayFormat", &rule.display_format)
        .close();
}

/// Writes a branch up to the value of its child branches.
fn open_branch(out: &mut Vec<u8>, leaves: &[ListedLeaf]) {
    out.extend_from_slice(b"{\"leaves\":");
    if leaves.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        write_json_list(out, leaves, write_leaf);
    }
    out.extend_from_slice(b",\"branches\":");
}

/// Writes the rest of a branch. `path` begins with the root.
fn close_branch(out: &mut Vec<u8>, tree: TreeId, path: &[String], display_name: &str) {
    out.extend_from_slice(b",\"path\":");
    let mut depths = JsonObject::open(out);
    for (depth, name) in path.iter().enumerate() {
        depths.string(&depth.to_string(), name);
    }
    depths.close();
    out.extend_from_slice(b",\"displayName\":");
    write_json_string(out, display_name);
    let row = tree.branch_row(path.get(1..).unwrap_or_default());
    let rest = format!(
        ",\"treeId\":{},\"branchId\":\"{}\",\"depth\":{}}}",
        tree.number(),
        to_hex(&row),
        path.len().saturating_sub(1)
    );
    out.extend_from_slice(rest.as_bytes());
}

fn write_leaf(out: &mut Vec<u8>, leaf: &ListedLeaf) {
    let mut object = JsonObject::open(out);
    object.string("metric", &leaf.metric);
    match &leaf.tags {
        Some(tags) => object.tags("tags", tags),
        None => object.literal("tags", "null"),
    };
    object.string("tsuid", &leaf.tsuid).string("displayName", &leaf.display_name).close();
}

/// Writes the root with the branches of a place, one inside the other. Iterative, since a path may be long.
fn write_place(out: &mut Vec<u8>, tree: TreeId, place: &TestedPath) {
    let leaf = place.leaf.as_slice();
    let names: Vec<&str> =
        std::iter::once(Branch::ROOT).chain(place.branches.iter().map(String::as_str)).collect();
    // Number of names in the path of each branch. A branch with the root's name shares the root's path.
    let mut path: Vec<String> = Vec::new();
    let mut depths = Vec::new();
    for name in &names {
        if path.last().is_none_or(|last| last != name) {
            path.push((*name).to_owned());
        }
        depths.push(path.len());
    }
    for _ in 1..names.len() {
        open_branch(out, &[]);
        out.push(b'[');
    }
    open_branch(out, leaf);
    out.extend_from_slice(b"null");
    for (i, (name, depth)) in names.iter().zip(depths).enumerate().rev() {
        close_branch(out, tree, path.get(..depth).unwrap_or_default(), name);
        if i > 0 {
            out.push(b']');
        }
    }
}

/// Sorts names as Java does, ignoring case, and equal names by case.
fn sort_key(name: &str) -> (Vec<char>, String) {
    let folded = name.chars().map(|c| {
        let upper = only(c.to_uppercase(), c);
        only(upper.to_lowercase(), upper)
    });
    (folded.collect(), name.to_owned())
}

/// Returns the only character, or `otherwise` if there are several.
fn only(mut chars: impl Iterator<Item = char>, otherwise: char) -> char {
    match (chars.next(), chars.next()) {
        (Some(c), None) => c,
        _ => otherwise,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use tsd_model::{TreeDefinition, TreeRuleKind};

    use super::*;

    fn tree() -> Tree {
        let definition = TreeDefinition {
            name: "T".to_owned(),
            notes: "n\"".to_owned(),
            enabled: true,
            created: 7,
            ..TreeDefinition::default()
        };
        Tree::new(TreeId::try_new(1).unwrap(), definition)
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn rules_are_nested_by_level_and_order() {
        assert_eq!(
            text(render_trees(&[tree()])),
            r#"[{"name":"T","description":"","notes":"n\"","enabled":true,"rules":null,"created":7,"treeId":1,"strictMatch":false,"storeFailures":false}]"#
        );
        let mut tree = tree();
        for (level, order) in [(0, 0), (0, 10), (2, 1)] {
            let rule = TreeRule {
                kind: TreeRuleKind::Tagk,
                field: "host".to_owned(),
                level: level.into(),
                order: order.into(),
                tree_id: 1,
                ..TreeRule::default()
            };
            tree.rules.insert((level, order), rule);
        }
        let rendered = text(render_tree(&tree));
        let rules: serde_json::Value = serde_json::from_str(&rendered).unwrap();
        assert_eq!(rules["rules"]["0"]["10"]["order"], 10);
        assert_eq!(rules["rules"]["2"]["1"]["level"], 2);
        assert!(rendered.contains(r#""rules":{"0":{"0":{"type":"TAGK","field":"host","#));
        assert_eq!(
            text(render_tree_rule(&tree.rules[&(2, 1)])),
            r#"{"type":"TAGK","field":"host","regex":"","separator":"","description":"","notes":"","level":2,"order":1,"treeId":1,"customField":"","regexGroupIdx":0,"displayFormat":""}"#
        );
    }

    fn leaf(name: &str) -> ListedLeaf {
        ListedLeaf { display_name: name.to_owned(), ..ListedLeaf::default() }
    }

    fn branch(names: &[&str]) -> Branch {
        let path: Vec<String> =
            std::iter::once("ROOT").chain(names.iter().copied()).map(str::to_owned).collect();
        Branch { display_name: path.last().unwrap().clone(), path }
    }

    #[test]
    fn branches_list_their_leaves_and_children_by_name() {
        let named = ListedLeaf {
            metric: "m".to_owned(),
            tags: Some(vec![("a".to_owned(), "b".to_owned())]),
            tsuid: "01".to_owned(),
            ..leaf("b")
        };
        let children = vec![branch(&["dal", "x"]), branch(&["dal", "W"])];
        let rendered = text(render_branch(
            TreeId::try_new(1).unwrap(),
            &branch(&["dal"]),
            vec![leaf("c"), leaf("C"), named, leaf("A")],
            children,
        ));
        assert!(rendered.starts_with(
            r#"{"leaves":[{"metric":"","tags":null,"tsuid":"","displayName":"A"},{"metric":"m","tags":{"a":"b"},"tsuid":"01","displayName":"b"},"#
        ));
        let value: serde_json::Value = serde_json::from_str(&rendered).unwrap();
        let names = |key: &str| -> Vec<&str> {
            let list = value[key].as_array().unwrap();
            list.iter().map(|entry| entry["displayName"].as_str().unwrap()).collect()
        };
        assert_eq!(names("leaves"), ["A", "b", "C", "c"]);
        assert_eq!(names("branches"), ["W", "x"]);
        assert!(rendered.ends_with(
            r#""path":{"0":"ROOT","1":"dal"},"displayName":"dal","treeId":1,"branchId":"00010001838F","depth":1}"#
        ));
        let empty = render_branch(TreeId::try_new(1).unwrap(), &branch(&[]), vec![], vec![]);
        assert_eq!(
            text(empty),
            r#"{"leaves":null,"branches":null,"path":{"0":"ROOT"},"displayName":"ROOT","treeId":1,"branchId":"0001","depth":0}"#
        );
    }

    #[test]
    fn tests_show_the_path_as_nested_branches() {
        let mut writer = TreeTestWriter::new(TreeId::try_new(1).unwrap());
        let place = TestedPath {
            branches: vec!["dal".to_owned(), "web01".to_owned()],
            leaf: Some(ListedLeaf { tsuid: "01".to_owned(), ..leaf("m") }),
        };
        let result = TreeTestResult {
            meta: Some(b"{}".to_vec()),
            messages: vec!["a".to_owned()],
            place: Some(place),
        };
        writer.add("01", &result);
        let missing =
            TreeTestResult { messages: vec!["b".to_owned()], ..TreeTestResult::default() };
        writer.add("02", &missing);
        assert_eq!(
            text(writer.finish()),
            r#"{"01":{"meta":{},"messages":["a"],"branch":{"leaves":null,"branches":[{"leaves":null,"branches":[{"leaves":[{"metric":"","tags":null,"tsuid":"01","displayName":"m"}],"branches":null,"path":{"0":"ROOT","1":"dal","2":"web01"},"displayName":"web01","treeId":1,"branchId":"00010001838F06BC4C55","depth":2}],"path":{"0":"ROOT","1":"dal"},"displayName":"dal","treeId":1,"branchId":"00010001838F","depth":1}],"path":{"0":"ROOT"},"displayName":"ROOT","treeId":1,"branchId":"0001","depth":0}},"02":{"meta":null,"messages":["b"],"branch":null}}"#
        );
    }

    #[test]
    fn a_branch_named_as_the_root_has_its_path() {
        let mut out = Vec::new();
        let place = TestedPath { branches: vec!["ROOT".to_owned(), "a".to_owned()], leaf: None };
        write_place(&mut out, TreeId::try_new(1).unwrap(), &place);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let child = &value["branches"][0];
        assert_eq!((child["branchId"].as_str(), child["depth"].as_u64()), (Some("0001"), Some(0)));
        assert_eq!(child["branches"][0]["path"]["1"], "a");
    }

    #[test]
    fn repeated_tsuids_are_tested_once() {
        let order = TreeTestWriter::order(vec!["01".to_owned(), "02".to_owned(), "01".to_owned()]);
        assert_eq!(order.len(), 2);
    }

    #[test]
    fn failures_are_texts_by_tsuid() {
        let failures = vec![("000001".to_owned(), "[1:0:0:TAGK]".to_owned())];
        assert_eq!(text(render_tree_failures(failures)), r#"{"000001":"[1:0:0:TAGK]"}"#);
        assert_eq!(text(render_tree_failures(Vec::new())), "{}");
    }
}
