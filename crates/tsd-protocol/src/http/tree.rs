//! Requests about trees, from URI parameters or a JSON body.
//!
//! As in OpenTSDB, a body replaces the parameters, whatever the method. A body that is not the expected JSON is a 400
//! for a tree and a 500 for other requests. Errors of single fields are a 400.

use tsd_model::{TreeEdit, TreeId, TreeRuleEdit, TreeRuleKind};
use tsd_query::compile_pattern;

use super::{
    body_fields::{
        BodyError, CountLimit, read_all, read_body_object, read_document, read_integer,
        read_object, read_text, take_null,
    },
    query_string::QueryString,
};
use crate::{ApiError, json::JsonReader};

/// Maximum rules of one body.
const MAX_RULES: usize = 1_024;
/// Maximum TSUIDs of one request.
const MAX_TSUIDS: usize = 10_000;

/// A request about a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeRequest {
    /// Number of the tree; 0 if the request has no number.
    pub tree_id: i64,
    /// Fields to set.
    pub edit: TreeEdit,
    /// A delete includes the definition.
    pub with_definition: bool,
}

/// A request about series and a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeSeriesRequest {
    /// Number of the tree.
    pub tree_id: i64,
    /// TSUIDs as sent; empty if the field is missing.
    pub tsuids: Vec<String>,
}

/// Parses a request about a tree from the parameters of a URI.
pub fn parse_tree_uri(query: &QueryString) -> Result<TreeRequest, ApiError> {
    let text = |name| query.get(name).map(str::to_owned);
    let flag = |name| query.get(name).map(is_true);
    Ok(TreeRequest {
        tree_id: parse_tree_id(query)?,
        edit: TreeEdit {
            name: text("name"),
            description: text("description"),
            notes: text("notes"),
            strict_match: flag("strict_match"),
            enabled: flag("enabled"),
            store_failures: flag("store_failures"),
        },
        with_definition: flag("definition").unwrap_or(false),
    })
}

/// Parses a request about a tree from a body, whose values are texts.
pub fn parse_tree_body(body: &str) -> Result<TreeRequest, ApiError> {
    let mut request = TreeRequest::default();
    let mut tree_id = None;
    read_body_object(body, "tree", |key, reader| {
        let edit = &mut request.edit;
        let text = match key.to_ascii_lowercase().as_str() {
            "treeid" => &mut tree_id,
            "name" => &mut edit.name,
            "description" => &mut edit.description,
            "notes" => &mut edit.notes,
            flag @ ("enabled" | "strictmatch" | "storefailures" | "definition") => {
                if let Some(value) = read_text(reader, "tree")?.map(|text| is_true(&text)) {
                    match flag {
                        "enabled" => edit.enabled = Some(value),
                        "strictmatch" => edit.strict_match = Some(value),
                        "storefailures" => edit.store_failures = Some(value),
                        _ => request.with_definition = value,
                    }
                }
                return Ok(());
            }
            // In OpenTSDB every value of the map must be a text; other values are ignored here.
            _ => return Ok(reader.skip_value()?),
        };
        if let Some(value) = read_text(reader, "tree")? {
            *text = Some(value);
        }
        Ok(())
    })
    .map_err(BodyError::into_api_error)?;
    if let Some(text) = tree_id {
        let bad = || ApiError::new(400, "Unable to parse 'tree' value");
        request.tree_id = java_int(&text).ok_or_else(bad)?;
    }
    Ok(request)
}

/// Parses the number of a tree in the parameter `treeid`; 0 if it is missing.
pub fn parse_tree_id(query: &QueryString) -> Result<i64, ApiError> {
    query.get("treeid").map_or(Ok(0), |text| int_parameter(text, "Unable to parse 'tree' value"))
}

/// Parses a rule from the parameters of a URI.
pub fn parse_tree_rule_uri(query: &QueryString) -> Result<TreeRuleEdit, ApiError> {
    let tree_id = int_parameter(query.required("treeid")?, "Unable to parse 'tree' value")?;
    let text = |name| query.get(name).map(str::to_owned);
    let kind = query.get("type").map(parse_kind).transpose()?;
    let regex = text("regex");
    check_pattern(regex.as_deref(), "regex")?;
    let group = query
        .get("regex_group_idx")
        .map(|text| int_parameter(text, "Unable to parse the 'regex_group_idx' parameter"));
    let number = |name| {
        let message = format!("Unable to parse the '{name}' parameter");
        int_parameter(query.required(name)?, &message)
    };
    let edit = TreeRuleEdit {
        tree_id,
        regex_group: group.transpose()?,
        level: number("level")?,
        order: number("order")?,
        kind,
        field: text("field"),
        custom_field: text("custom_field"),
        regex,
        separator: text("separator"),
        description: text("description"),
        notes: text("notes"),
        display_format: text("display_format"),
    };
    check_rule(edit)
}

/// Parses a rule from a body.
pub fn parse_tree_rule_body(body: &str) -> Result<TreeRuleEdit, ApiError> {
    read_document(body, read_rule).map_err(BodyError::into_api_error).and_then(UncheckedRule::check)
}

/// Parses an array of rules of one tree. Returns its number, and at least one rule.
pub fn parse_tree_rules_body(body: &str) -> Result<(i64, Vec<TreeRuleEdit>), ApiError> {
    let mut limit = CountLimit::new("rules", MAX_RULES);
    let rules = read_document(body, |reader| {
        read_all(reader, "rules", |reader| {
            limit.take()?;
            read_rule(reader)
        })
    })
    .map_err(BodyError::into_api_error)?;
    let rules =
        rules.into_iter().map(UncheckedRule::check).collect::<Result<Vec<_>, ApiError>>()?;
    let Some(tree_id) = rules.first().map(|rule| rule.tree_id) else {
        return Err(ApiError::new(400, "Missing tree rules"));
    };
    if rules.iter().any(|rule| rule.tree_id != tree_id) {
        return Err(ApiError::new(400, "All rules must belong to the same tree"));
    }
    Ok((tree_id, rules))
}

/// Parses a list of series from the parameters of a URI.
pub fn parse_tree_series_uri(query: &QueryString) -> Result<TreeSeriesRequest, ApiError> {
    let tree_id = int_parameter(query.required("treeid")?, "Unable to parse 'tree' value")?;
    let tsuids: Vec<String> = query
        .get("tsuids")
        .map(|list| list.split(',').map(str::to_owned).collect())
        .unwrap_or_default();
    if tsuids.len() > MAX_TSUIDS {
        return Err(ApiError::too_many("TSUIDs", MAX_TSUIDS));
    }
    Ok(TreeSeriesRequest { tree_id, tsuids })
}

/// Parses a list of series from a body.
pub fn parse_tree_series_body(body: &str) -> Result<TreeSeriesRequest, ApiError> {
    let (mut tree_id, mut tsuids, mut is_list) = (None, Vec::new(), true);
    read_body_object(body, "tsuids", |key, reader| {
        match key {
            "treeId" if take_null(reader)? => tree_id = None,
            "treeId" => tree_id = Some(read_integer(reader, "treeId")?),
            "tsuids" if matches!(reader.peek_token(), Some(b'[' | b'n')) => {
                let mut limit = CountLimit::new("TSUIDs", MAX_TSUIDS);
                tsuids = read_all(reader, "tsuids", |reader| {
                    limit.take()?;
                    Ok(read_text(reader, "tsuids")?.unwrap_or_default())
                })?;
                is_list = true;
            }
            "tsuids" => {
                reader.skip_value()?;
                is_list = false;
            }
            _ => reader.skip_value()?,
        }
        Ok(())
    })
    .map_err(BodyError::into_api_error)?;
    if !is_list {
        return Err(ApiError::new(400, "Unable to convert the given data to a list"));
    }
    let tree_id = tree_id.ok_or_else(|| ApiError::new(400, "Missing or invalid Tree ID"))?;
    Ok(TreeSeriesRequest { tree_id, tsuids })
}

/// Returns the row key of a branch: the parameter `branch` in hex, or the root of the tree `treeid`.
pub fn parse_branch_uri(query: &QueryString) -> Result<Vec<u8>, ApiError> {
    let tree_id = parse_tree_id(query)?;
    let Some(hex) = query.get("branch").filter(|hex| !hex.is_empty()) else {
        if tree_id < 1 {
            return Err(ApiError::new(400, "Missing or invalid branch and tree IDs"));
        }
        let tree = TreeId::from_number(tree_id)
            .ok_or_else(|| ApiError::wrapped(400, "Missing or invalid tree ID"))?;
        return Ok(tree.row().to_vec());
    };
    if hex.len() < 4 {
        return Err(ApiError::wrapped(400, "Branch ID was too short"));
    }
    let padded = if hex.len() % 2 == 1 { format!("0{hex}") } else { hex.to_owned() };
    tsd_model::from_hex(padded.as_bytes()).ok_or_else(|| {
        let text = format!("contains illegal character for hexBinary: {padded}");
        ApiError::wrapped(400, text)
    })
}

/// A rule of a body before its expressions are compiled. The type is as sent.
struct UncheckedRule {
    edit: TreeRuleEdit,
    kind: Option<String>,
}

impl UncheckedRule {
    fn check(self) -> Result<TreeRuleEdit, ApiError> {
        let kind = self.kind.map(|name| parse_kind(&name)).transpose()?;
        check_pattern(self.edit.regex.as_deref(), "regex")?;
        check_rule(TreeRuleEdit { kind, ..self.edit })
    }
}

fn read_rule(reader: &mut JsonReader<'_>) -> Result<UncheckedRule, BodyError> {
    let mut edit = TreeRuleEdit::default();
    let mut kind = None;
    read_object(reader, "rule", |key, reader| {
        match key {
            "treeId" => edit.tree_id = read_integer(reader, "treeId")?,
            "level" => edit.level = read_integer(reader, "level")?,
            "order" => edit.order = read_integer(reader, "order")?,
            "regexGroupIdx" => edit.regex_group = Some(read_integer(reader, "regexGroupIdx")?),
            "type" => kind = read_text(reader, "type")?,
            "field" => edit.field = read_text(reader, "field")?,
            "customField" => edit.custom_field = read_text(reader, "customField")?,
            "regex" => edit.regex = read_text(reader, "regex")?,
            "separator" => edit.separator = read_text(reader, "separator")?,
            "description" => edit.description = read_text(reader, "description")?,
            "notes" => edit.notes = read_text(reader, "notes")?,
            "displayFormat" => edit.display_format = read_text(reader, "displayFormat")?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })?;
    Ok(UncheckedRule { edit, kind })
}

/// Fails if a number does not fit or the separator is invalid. OpenTSDB checks the separator only with each series.
fn check_rule(edit: TreeRuleEdit) -> Result<TreeRuleEdit, ApiError> {
    if edit.level < 0 {
        return Err(ApiError::wrapped(400, "Negative levels are not allowed"));
    }
    for (name, number) in [
        ("treeId", edit.tree_id),
        ("level", edit.level),
        ("order", edit.order),
        ("regexGroupIdx", edit.regex_group.unwrap_or(0)),
    ] {
        if i32::try_from(number).is_err() {
            let details = format!("{number} does not fit into 32 bits");
            let message = format!("Unable to parse the '{name}' parameter");
            return Err(ApiError::new(400, message).with_details(details));
        }
    }
    check_pattern(edit.separator.as_deref(), "separator")?;
    Ok(edit)
}

fn check_pattern(pattern: Option<&str>, name: &str) -> Result<(), ApiError> {
    let Some(pattern) = pattern.filter(|pattern| !pattern.is_empty()) else { return Ok(()) };
    compile_pattern(pattern).map(|_| ()).map_err(|error| {
        ApiError::new(400, format!("Unable to parse the '{name}' parameter"))
            .with_details(error.to_string())
    })
}

fn parse_kind(name: &str) -> Result<TreeRuleKind, ApiError> {
    TreeRuleKind::from_name(name).ok_or_else(|| {
        let details =
            if name.is_empty() { "Rule type was empty" } else { "Unrecognized rule type" };
        ApiError::new(400, "Unable to parse the 'type' parameter").with_details(details)
    })
}

fn int_parameter(text: &str, message: &str) -> Result<i64, ApiError> {
    java_int(text).ok_or_else(|| {
        ApiError::new(400, message).with_details(format!("\"{text}\" is not a 32-bit integer"))
    })
}

/// Parses a number like Java's `Integer.parseInt`.
fn java_int(text: &str) -> Option<i64> {
    text.parse::<i32>().ok().map(i64::from)
}

fn is_true(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn query(text: &str) -> QueryString {
        QueryString::parse(text).unwrap()
    }

    #[test]
    fn trees_are_parsed_from_parameters_and_bodies() {
        let by_uri = parse_tree_uri(&query(
            "treeid=3&name=T&description=&strict_match=TRUE&enabled=false&definition=true",
        ));
        let by_body = parse_tree_body(
            r#"{"treeId":3,"NAME":"T","description":"","strictMatch":true,"enabled":"no","definition":"True","notes":null,"x":[1]}"#,
        );
        let expected = TreeRequest {
            tree_id: 3,
            edit: TreeEdit {
                name: Some("T".to_owned()),
                description: Some(String::new()),
                strict_match: Some(true),
                enabled: Some(false),
                ..TreeEdit::default()
            },
            with_definition: true,
        };
        assert_eq!(by_uri, Ok(expected.clone()));
        assert_eq!(by_body, Ok(expected));
        assert_eq!(parse_tree_uri(&query("")), Ok(TreeRequest::default()));
    }

    #[test]
    fn numbers_of_trees_are_integers() {
        for bad in ["x", "", "1.5", "99999999999", " 1"] {
            let uri = format!("treeid={}", bad.replace(' ', "+"));
            let error = parse_tree_uri(&query(&uri)).unwrap_err();
            assert_eq!(error.status, 400);
            assert_eq!(error.message, "Unable to parse 'tree' value");
            assert_eq!(error.details, format!("\"{bad}\" is not a 32-bit integer"));
            let error = parse_tree_body(&format!(r#"{{"treeId":"{bad}"}}"#)).unwrap_err();
            assert_eq!(
                (error.status, error.message.as_str()),
                (400, "Unable to parse 'tree' value")
            );
        }
        assert_eq!(parse_tree_uri(&query("treeid=-5")).unwrap().tree_id, -5);
        for bad in ["", "[]", "{", r#"{"name":{}}"#, "nonsense"] {
            let error = parse_tree_body(bad).unwrap_err();
            assert_eq!(
                (error.status, error.message.as_str()),
                (400, "Unable to parse the given JSON")
            );
        }
    }

    #[test]
    fn rules_are_parsed_from_parameters_and_bodies() {
        let by_uri = parse_tree_rule_uri(&query(
            "treeid=1&level=2&order=3&type=tagk&field=host&regex=%5E(.*)$&regex_group_idx=1&separator=%5C.\
         &custom_field=c&description=d&notes=n&display_format={value}",
        ));
        let by_body = parse_tree_rule_body(
            r#"{"treeId":"1","level":2,"order":3,"type":"TAGK","field":"host","regex":"^(.*)$","regexGroupIdx":1,
            "separator":"\\.","customField":"c","description":"d","notes":"n","displayFormat":"{value}","x":{}}"#,
        );
        let expected = TreeRuleEdit {
            tree_id: 1,
            level: 2,
            order: 3,
            kind: Some(TreeRuleKind::Tagk),
            field: Some("host".to_owned()),
            custom_field: Some("c".to_owned()),
            regex: Some("^(.*)$".to_owned()),
            separator: Some("\\.".to_owned()),
            description: Some("d".to_owned()),
            notes: Some("n".to_owned()),
            regex_group: Some(1),
            display_format: Some("{value}".to_owned()),
        };
        assert_eq!(by_uri, Ok(expected.clone()));
        assert_eq!(by_body, Ok(expected));
    }

    #[test]
    fn rules_need_a_place() {
        for (uri, missing) in [
            ("level=1&order=1", "treeid"),
            ("treeid=1&order=1", "level"),
            ("treeid=1&level=1", "order"),
        ] {
            let error = parse_tree_rule_uri(&query(uri)).unwrap_err();
            assert_eq!(error, ApiError::missing_parameter(missing));
        }
        for (uri, message) in [
            ("treeid=a&level=1&order=1", "Unable to parse 'tree' value"),
            ("treeid=1&level=a&order=1", "Unable to parse the 'level' parameter"),
            ("treeid=1&level=1&order=a", "Unable to parse the 'order' parameter"),
            ("treeid=1&level=1&order=1&type=host", "Unable to parse the 'type' parameter"),
            ("treeid=1&level=1&order=1&regex=(", "Unable to parse the 'regex' parameter"),
            ("treeid=1&level=1&order=1&separator=*", "Unable to parse the 'separator' parameter"),
            (
                "treeid=1&level=1&order=1&regex_group_idx=x",
                "Unable to parse the 'regex_group_idx' parameter",
            ),
            ("treeid=1&level=-1&order=1", "Negative levels are not allowed"),
        ] {
            let error = parse_tree_rule_uri(&query(uri)).unwrap_err();
            assert_eq!((error.status, error.message.as_str()), (400, message), "{uri}");
        }
    }

    #[test]
    fn invalid_bodies_of_rules_are_refused() {
        for bad in ["", "[]", "{", r#"{"level":{}}"#, r#"{"level":"a"}"#] {
            assert_eq!(parse_tree_rule_body(bad).unwrap_err().status, 400, "{bad}");
        }
        for bad in [
            r#"{"level":-1}"#,
            r#"{"level":4294967296}"#,
            r#"{"type":"host"}"#,
            r#"{"type":""}"#,
            r#"{"regex":"("}"#,
            r#"{"regex":"(?=a)"}"#,
            r#"{"separator":"["}"#,
        ] {
            assert_eq!(parse_tree_rule_body(bad).unwrap_err().status, 400, "{bad}");
        }
    }

    #[test]
    fn rules_of_a_body_belong_to_one_tree() {
        let (tree_id, rules) = parse_tree_rules_body(
            r#"[{"treeId":2,"type":"METRIC"},{"treeId":2,"level":1,"type":"TAGK","field":"a"}]"#,
        )
        .unwrap();
        assert_eq!((tree_id, rules.len()), (2, 2));
        for (bad, message) in [
            ("[]", "Missing tree rules"),
            ("null", "Missing tree rules"),
            (r#"[{"treeId":1},{"treeId":2}]"#, "All rules must belong to the same tree"),
        ] {
            let error = parse_tree_rules_body(bad).unwrap_err();
            assert_eq!((error.status, error.message.as_str()), (400, message), "{bad}");
        }
        for bad in ["", "{}", "[", "[1]"] {
            assert_eq!(parse_tree_rules_body(bad).unwrap_err().status, 400, "{bad}");
        }
        let many = format!("[{}]", vec!["{}"; MAX_RULES + 1].join(","));
        assert_eq!(parse_tree_rules_body(&many).unwrap_err().status, 413);
    }

    #[test]
    fn series_are_listed_with_a_tree() {
        let expected =
            TreeSeriesRequest { tree_id: 1, tsuids: vec!["01".to_owned(), "02".to_owned()] };
        assert_eq!(parse_tree_series_uri(&query("treeid=1&tsuids=01,02")), Ok(expected.clone()));
        assert_eq!(parse_tree_series_body(r#"{"treeId":1,"tsuids":["01","02"]}"#), Ok(expected));
        let none = TreeSeriesRequest { tree_id: 1, tsuids: Vec::new() };
        assert_eq!(parse_tree_series_uri(&query("treeid=1")), Ok(none.clone()));
        assert_eq!(parse_tree_series_body(r#"{"treeId":1,"tsuids":null}"#), Ok(none));
        let error = parse_tree_series_body(r#"{"tsuids":[]}"#).unwrap_err();
        assert_eq!((error.status, error.message.as_str()), (400, "Missing or invalid Tree ID"));
        let error = parse_tree_series_body(r#"{"treeId":1,"tsuids":"01"}"#).unwrap_err();
        let text = "Unable to convert the given data to a list";
        assert_eq!((error.status, error.message.as_str()), (400, text));
        assert_eq!(parse_tree_series_body("[").unwrap_err().status, 400);
    }

    #[test]
    fn branches_are_named_by_their_row_or_their_tree() {
        assert_eq!(parse_branch_uri(&query("treeid=258")), Ok(vec![1, 2]));
        assert_eq!(
            parse_branch_uri(&query("treeid=1&branch=00010001838f")),
            Ok(vec![0, 1, 0, 1, 0x83, 0x8f])
        );
        assert_eq!(parse_branch_uri(&query("branch=00011")), Ok(vec![0, 0, 0x11]));
        for (uri, message) in [
            ("", "Missing or invalid branch and tree IDs"),
            ("treeid=0", "Missing or invalid branch and tree IDs"),
            ("treeid=65536", "Missing or invalid tree ID"),
            ("branch=001", "Branch ID was too short"),
            ("branch=zzzz", "contains illegal character for hexBinary: zzzz"),
            ("treeid=x", "Unable to parse 'tree' value"),
        ] {
            let error = parse_branch_uri(&query(uri)).unwrap_err();
            assert_eq!((error.status, error.message.as_str()), (400, message), "{uri}");
        }
    }
}
