#![expect(clippy::unwrap_used, reason = "tests")]

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
        assert_eq!(error.details, format!("For input string: \"{bad}\""));
        let error = parse_tree_body(&format!(r#"{{"treeId":"{bad}"}}"#)).unwrap_err();
        assert_eq!((error.status, error.message.as_str()), (400, "Unable to parse 'tree' value"));
    }
    assert_eq!(parse_tree_uri(&query("treeid=-5")).unwrap().tree_id, -5);
    for bad in ["", "[]", "{", r#"{"name":{}}"#, "nonsense"] {
        let error = parse_tree_body(bad).unwrap_err();
        assert_eq!((error.status, error.message.as_str()), (400, "Unable to parse the given JSON"));
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
        assert_eq!(parse_tree_rule_body(bad).unwrap_err().status, 500, "{bad}");
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
        assert_eq!(parse_tree_rules_body(bad).unwrap_err().status, 500, "{bad}");
    }
    let many = format!("[{}]", vec!["{}"; MAX_RULES + 1].join(","));
    assert_eq!(parse_tree_rules_body(&many).unwrap_err().status, 413);
}

#[test]
fn series_are_listed_with_a_tree() {
    let expected = TreeSeriesRequest { tree_id: 1, tsuids: vec!["01".to_owned(), "02".to_owned()] };
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
    assert_eq!(parse_tree_series_body("[").unwrap_err().status, 500);
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
