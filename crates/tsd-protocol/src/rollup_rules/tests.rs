#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

const CONFIG: &str = r#"{"aggregationIds":{"sum":0,"count":1,"avg":42},"intervals":[
    {"table":"tsdb","preAggregationTable":"agg","interval":"1m","rowSpan":"1h","defaultInterval":true},
    {"table":"r1h","preAggregationTable":"a1h","interval":"1h","rowSpan":"1n"}]}"#;

fn rules() -> RollupRules {
    RollupRules {
        config: RollupConfig::from_json(CONFIG.as_bytes(), |_| true).unwrap(),
        aggregate_tag_key: "_aggregate".into(),
        raw_tag_value: "RAW".into(),
        tag_raw: false,
        block_derived: true,
    }
}

fn spec<'a>(interval: &'a str, aggregator: &'a str, group_by: &'a str) -> RollupSpec<'a> {
    let given = |text: &'a str| Some(text.as_bytes()).filter(|text| !text.is_empty());
    RollupSpec {
        interval: given(interval),
        aggregator: aggregator.as_bytes(),
        group_by: given(group_by),
    }
}

fn check(
    rules: &RollupRules,
    spec: &RollupSpec<'_>,
    time: i64,
    tags: &[(&str, &str)],
) -> Result<RollupPlacement, String> {
    let pairs: TagPairs<'_> = tags.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes())).collect();
    let time = Timestamp::try_new(time).unwrap();
    let one = PointValue::Integer(42);
    let checked = rules.check(spec, b"m", time, one, &pairs, &SeriesRules::default());
    let names_none = tags.iter().all(|(key, _)| *key != "_aggregate");
    if names_none && !time.is_millis() && !pairs.is_empty() {
        assert_eq!(rules.placement(spec), checked.as_ref().ok().cloned(), "{spec:?}");
    }
    checked.map_err(|fault| fault.to_string())
}

const HOST: [(&str, &str); 1] = [("host", "a")];

#[test]
fn points_belong_to_intervals_and_groups() {
    let placed = |interval, aggregator, group_by| {
        check(&rules(), &spec(interval, aggregator, group_by), 1, &HOST).unwrap()
    };
    let placement = |slot, tag: Option<&str>| RollupPlacement {
        slot,
        pre_aggregate: tag.is_some(),
        tag_value: tag.map(|tag| tag.as_bytes().to_vec()),
    };
    assert_eq!(placed("1h", "sum", ""), placement(Some((1, 0)), None));
    assert_eq!(placed("1h", "Count", "max"), placement(Some((1, 1)), Some("MAX")));
    assert_eq!(placed("", "sum", "sum"), placement(None, Some("SUM")));
}

#[test]
fn faults_come_in_opentsdbs_order_and_words() {
    let rules = rules();
    let fault = |interval, aggregator, group_by, time, tags: &[(&str, &str)]| {
        check(&rules, &spec(interval, aggregator, group_by), time, tags).unwrap_err()
    };
    let with_tag = [("host", "a"), ("_aggregate", "max")];
    let bad_name = [("host", "a!")];
    let texts = [
        fault("5m", "sum", "nope", 1_370_532_925_123, &with_tag),
        fault("5m", "nope", "sum", 1, &with_tag),
        fault("1h", "sum", "", 1, &with_tag),
        fault("5m", "nope", "nope", 1, &bad_name),
        fault("5m", "nope", "avg", 1, &bad_name),
        fault("5m", "nope", "", 1, &bad_name),
        fault("5m", "nope", "", 1, &[]),
        fault("5m", "nope", "", 1, &HOST),
        fault("1h", "nope", "", 1, &HOST),
        fault("1h", "dev", "", 1, &HOST),
        fault("1h", "avg", "", 1, &HOST),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r#"
    bad timestamp=1370532925123 when trying to add value=[42]/0 to metric=m, tags={host=a, _aggregate=max}
    Given tag value for _aggregate of max did not match the group by aggregator of sum for m {host=a, _aggregate=max}
    Given tag value for _aggregate of max did not match the group by aggregator of null for m {host=a, _aggregate=max}
    Invalid group by aggregator nope with metric m {_aggregate=NOPE, host=a!}
    Derived group by aggregations are not allowed AVG with metric m {_aggregate=AVG, host=a!}
    Invalid tag value with key [host] ("a!"): illegal character: !
    Need at least one tag (metric=m, tags={})
    No rollups configured for the interval: 5m
    No ID found mapping to aggregator: nope
    No ID found mapping to aggregator: dev
    Derived rollup aggregations are not allowed AVG with metric m {host=a}
    "#);
}

#[test]
fn telnet_tells_unknown_intervals_in_a_class_of_their_own() {
    let mut text = String::new();
    RollupFault::UnknownInterval("5m".into()).render(&mut text);
    RollupFault::UnknownAggregator("last".into()).render(&mut text);
    RollupFault::without_configuration(&spec("", "sum", "sum")).render(&mut text);
    RollupFault::without_configuration(&spec("1h", "sum", "sum")).render(&mut text);
    insta::assert_snapshot!(text, @r"
    rollup: No such rollup: No rollups configured for the interval: 5m
    rollup: illegal argument: No ID found mapping to aggregator: last
    rollup: illegal argument: Invalid tag name with value [SUM]: null
    rollup: illegal argument: No rollup or aggregations were configured
    ");
}

#[test]
fn the_tag_of_the_aggregator_is_forced_to_upper_case() {
    let rules = rules();
    let tags: TagPairs<'_> =
        [(&b"_aggregate"[..], &b"sum"[..]), (b"host", b"a")].into_iter().collect();
    let time = Timestamp::try_new(1).unwrap();
    let series = SeriesRules::default();
    let placed = rules
        .check(&spec("", "sum", "Sum"), b"m", time, PointValue::Integer(1), &tags, &series)
        .unwrap();
    let expected: [(&[u8], &[u8]); 2] = [(b"_aggregate", b"SUM"), (b"host", b"a")];
    assert_eq!(rules.tags(&tags, &placed).as_slice(), expected);
    assert!(rules.may_name_aggregator(b"host=a _aggregate=sum"));
    assert!(!rules.may_name_aggregator(b"host=a"));
}

#[test]
fn derived_aggregators_and_raw_tags_are_settings() {
    let open = RollupRules { block_derived: false, tag_raw: true, ..rules() };
    let placed = check(&open, &spec("1h", "AVG", ""), 1, &HOST).unwrap();
    assert_eq!(placed.slot, Some((1, 42)));
    assert_eq!(placed.tag_value.as_deref(), Some(&b"RAW"[..]));
    let mut spelled = Vec::new();
    open.spell(b"host=a", &placed, b' ', b'=', &mut spelled);
    assert_eq!(spelled, b"host=a _aggregate=RAW");
    open.spell(b"host\na", &placed, b'\n', b'\n', &mut spelled);
    assert_eq!(spelled, b"host\na\n_aggregate\nRAW");
}

#[test]
fn the_tag_of_the_aggregator_counts_towards_the_limit() {
    let rules = rules();
    let keys: Vec<String> = (0..8).map(|n| format!("k{n}")).collect();
    let tags: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    assert!(check(&rules, &spec("1h", "sum", ""), 1, &tags).is_ok());
    let pairs: TagPairs<'_> = tags.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes())).collect();
    let fault = rules.check(
        &spec("1h", "sum", "sum"),
        b"m",
        Timestamp::try_new(1).unwrap(),
        PointValue::Integer(1),
        &pairs,
        &SeriesRules::default(),
    );
    assert!(fault.unwrap_err().to_string().starts_with("Too many tags: 9 maximum allowed: 8"));
}

proptest! {
    #[test]
    fn arbitrary_specs_never_panic(
        interval in prop::option::of(prop::collection::vec(any::<u8>(), 0..4)),
        aggregator in prop::collection::vec(any::<u8>(), 0..4),
        group_by in prop::option::of(prop::collection::vec(any::<u8>(), 0..4)),
    ) {
        let spec = RollupSpec {
            interval: interval.as_deref(),
            aggregator: &aggregator,
            group_by: group_by.as_deref(),
        };
        prop_assert!(rules().placement(&spec).is_none());
    }
}
