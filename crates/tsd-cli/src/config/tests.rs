#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

fn from_file(text: &str) -> Config {
    let mut config = Config::default();
    config.add_file(Path::new("opentsdb.conf"), text.as_bytes()).unwrap();
    config
}

#[test]
fn command_line_beats_environment_beats_file_beats_default() {
    let mut config = Config::default();
    assert_eq!(config.text("tsd.network.port"), Some("4242"));
    config.add_file(Path::new("f"), b"tsd.network.port = 1").unwrap();
    assert_eq!(config.text("tsd.network.port"), Some("1"));
    config.add_environment([("TSD_NETWORK_PORT".to_owned(), "2".to_owned())]);
    assert_eq!(config.text("tsd.network.port"), Some("2"));
    config.set_flag("--port", "tsd.network.port", "3");
    assert_eq!(config.text("tsd.network.port"), Some("3"));
}

#[test]
fn variables_set_keys_with_underscores() {
    let mut config = Config::default();
    config.add_environment([("TSD_CORE_AUTO_CREATE_METRICS".to_owned(), "no".to_owned())]);
    assert!(!config.bool("tsd.core.auto_create_metrics"));
}

#[test]
fn booleans_follow_opentsdb() {
    for yes in ["1", "true", "TRUE", "yes", " Yes "] {
        assert!(is_true(yes), "{yes:?}");
    }
    for no in ["", "0", "false", "on", "y", "truee"] {
        assert!(!is_true(no), "{no:?}");
    }
}

/// Keys of a kind.
fn keys_where(is_kind: impl Fn(ValueKind) -> bool) -> impl Iterator<Item = &'static str> {
    keys::KEYS.iter().filter(move |key| is_kind(key.kind)).map(|key| key.name)
}

#[test]
fn misspelt_booleans_are_errors() {
    for key in keys_where(|kind| matches!(kind, ValueKind::Bool | ValueKind::Exactly(_))) {
        for wrong in ["ture", "on", "off", "y", "truee", "2", "-1", "false;"] {
            let error = from_file(&format!("{key} = {wrong}")).check().unwrap_err().to_string();
            let start = format!("{key} = {wrong:?} (opentsdb.conf line 1): expected true");
            assert!(error.starts_with(&start) && error.contains("false"), "{error}");
        }
        for right in ["", "0", "False", "NO", " no "] {
            assert!(from_file(&format!("{key} = {right}")).check().is_ok(), "{key} = {right}");
        }
    }
}

#[test]
fn numbers_with_units_or_out_of_range_are_errors() {
    let is_number = |kind| matches!(kind, ValueKind::Int { .. } | ValueKind::Seconds { .. });
    for key in keys_where(is_number) {
        for wrong in ["64MB", "10s", "1k", "1,000", "99999999999999999999", "-2", "0x10", "ten"] {
            let error = from_file(&format!("{key} = {wrong}")).check().unwrap_err().to_string();
            let start = format!("{key} = {wrong:?} (opentsdb.conf line 1): expected ");
            assert!(error.starts_with(&start) && error.contains(" to "), "{error}");
        }
    }
}

#[test]
fn sizes_may_have_a_unit() {
    let config = from_file(
        "tsd.storage.memtable.size = 64 MiB\ntsd.query.cache.size = 1GB\ntsd.query.max_memory_bytes = 2048",
    );
    config.check().unwrap();
    assert_eq!(config.int::<u64>("tsd.storage.memtable.size"), 64 << 20);
    assert_eq!(config.int::<u64>("tsd.query.cache.size"), 1_000_000_000);
    assert_eq!(config.int::<u64>("tsd.query.max_memory_bytes"), 2_048);
    for wrong in ["64M", "1,000", "-2", "99999999TiB", "ten", "0x10", "1.5GiB"] {
        let text = format!("tsd.storage.memtable.size = {wrong}");
        let error = from_file(&text).check().unwrap_err().to_string();
        assert!(error.contains("expected bytes from ") && error.contains("MiB"), "{error}");
    }
}

#[test]
fn all_wrong_values_are_listed() {
    let file = "tsd.network.port = abc\ntsd.mode = rw\ntsd.core.auto_create_metrics = maybe\n";
    let error = from_file(file).check().unwrap_err().to_string();
    assert_eq!(
        error,
        "2 settings are wrong\n  \
         tsd.core.auto_create_metrics = \"maybe\" (opentsdb.conf line 3): expected true, 1 or yes, or false, 0, no or the \
         empty text\n  \
         tsd.network.port = \"abc\" (opentsdb.conf line 1): expected a whole number from 0 to 65535"
    );
}

#[test]
fn misspelt_log_levels_are_errors() {
    let level = |level: &str| {
        let mut config = Config::default();
        config.set_flag("--log-level", "tsd.log.level", level);
        Settings::from_config(&config).map_err(|error| error.to_string())
    };
    for right in ["info", "WARN", "off", "info,tsd_engine=debug", "warn,a::b[span{f=1}]=trace"] {
        assert!(level(right).is_ok(), "{right}");
    }
    for wrong in
        ["inof", "verbose", "", "info,debgu", "tsd_engine=debgu", "tsd_engine=", "info;warn"]
    {
        let error = level(wrong).unwrap_err();
        assert!(
            error.starts_with(&format!("tsd.log.level = {wrong:?} (--log-level): ")),
            "{error}"
        );
    }
}

#[test]
fn the_api_and_pages_are_enabled_by_the_exact_text() {
    for (text, enabled) in
        [("true", true), ("TRUE", false), ("1", false), ("yes", false), ("false", false)]
    {
        let config = from_file(&format!(
            "tsd.core.enable_api = {text}\ntsd.core.enable_ui = {text}\ntsd.no_diediedie = {text}"
        ));
        let server = Settings::from_config(&config).unwrap().server;
        assert_eq!((server.api_enabled, server.ui_enabled), (enabled, enabled), "{text}");
        assert_eq!(server.no_diediedie, text != "false");
        let surprising = if text == "false" || text == "true" { 0 } else { 2 };
        assert_eq!(config.warnings().len(), surprising, "{:?}", config.warnings());
    }
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let error = Settings::from_config(&from_file(text)).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_bad_value_names_key_value_and_source() {
    check_error(
        "\ntsd.network.port = 70000",
        "tsd.network.port = \"70000\" (opentsdb.conf line 2): \
         expected a whole number from 0 to 65535",
    );
    check_error(
        "tsd.mode = rx",
        "tsd.mode = \"rx\" (opentsdb.conf line 1): expected one of rw, ro, wo",
    );
    check_error(
        "tsd.storage.salt.width=9",
        "tsd.storage.salt.width = \"9\" (opentsdb.conf line 1): \
         expected a whole number from 0 to 8",
    );
    for wrong in ["0", "-1", "1e9", "NaN", "1m"] {
        check_error(
            &format!("tsd.storage.hold_seconds = {wrong}"),
            &format!(
                "tsd.storage.hold_seconds = \"{wrong}\" (opentsdb.conf line 1): \
                 expected seconds from 0.1 to 3600"
            ),
        );
    }
    check_error(
        "tsd.log.level = a=b=c",
        "tsd.log.level = \"a=b=c\" (opentsdb.conf line 1): \
         expected trace, debug, info, warn, error or off, or directives such as \
         info,tsd_engine=debug",
    );
    check_error(
        "tsd.core.uid.random_metrics = true\ntsd.storage.uid.width.metric = 8",
        "tsd.storage.uid.width.metric = \"8\" (opentsdb.conf line 2): \
         random metric UIDs need a width of at most 7",
    );
}

#[test]
fn a_log_needs_cells_with_the_times_of_their_writes() {
    check_error(
        "tsd.storage.ack = log\ntsd.storage.use_otsdb_timestamp = true\ntsd.storage.engine = hbase",
        "tsd.storage.ack = \"log\" (opentsdb.conf line 1): expected storage, with \
         tsd.storage.use_otsdb_timestamp: the flush of a log would undo corrections through other \
         daemons",
    );
    for other in ["tsd.storage.use_otsdb_timestamp = true", "tsd.storage.engine = hbase"] {
        let config = from_file(&format!("tsd.storage.ack = log\n{other}"));
        assert!(Settings::from_config(&config).is_ok(), "{other}");
    }
}

#[test]
fn a_limit_of_series_needs_an_index_that_counts_them() {
    check_error(
        "tsd.limits.series_per_metric = 5\ntsd.storage.engine = hbase",
        "tsd.limits.series_per_metric = \"5\" (opentsdb.conf line 1): expected 0 unless \
         tsd.storage.hbase.series_index is complete: nothing else counts series",
    );
    for other in ["", "tsd.storage.engine = hbase\ntsd.storage.hbase.series_index = complete\n"] {
        let config = from_file(&format!("tsd.limits.series_per_metric = 5\n{other}"));
        let settings = Settings::from_config(&config).unwrap();
        assert_eq!(settings.engine.uids.max_series_per_metric, 5, "{other}");
    }
}

#[test]
fn unknown_keys_and_keys_without_effect_have_different_warnings() {
    let mut config = from_file(
        "tsd.network.prot = 1\ntsd.network.async_io = false\nhbase.rpc.timeout=1\n\
         tsd.network.tcp_no_delay = true\n",
    );
    config.add_environment([("TSD_NETWORK_PROT".to_owned(), "1".to_owned())]);
    assert_eq!(
        config.without_effect(),
        [
            "hbase.rpc.timeout (opentsdb.conf line 3) has no effect on the embedded store",
            "tsd.network.async_io (opentsdb.conf line 2) has no effect: connections never have threads \
             of their own",
        ]
    );
    let (first, others) =
        config.warnings().split_first().map(|(f, o)| (f.clone(), o.to_vec())).unwrap();
    assert!(first.starts_with("hbase.rpc.timeout (opentsdb.conf line 3) is a key of HBase"));
    assert_eq!(
        others,
        [
            "unknown key tsd.network.prot (opentsdb.conf line 1)",
            "unknown environment variable TSD_NETWORK_PROT",
        ]
    );
}

#[test]
fn unknown_keys_are_shown_with_the_others() {
    let shown = from_file("my.key = 7").effective();
    assert_eq!(shown.get("my.key").unwrap(), "7");
    assert_eq!(shown.get("tsd.network.port").unwrap(), "4242");
    assert!(!shown.contains_key("tsd.core.timezone"));
}

#[test]
fn every_shown_key_has_a_source() {
    let mut config = from_file("my.key = 7\ntsd.mode = ro\n");
    config.add_environment([("TSD_NETWORK_PORT".to_owned(), "2".to_owned())]);
    config.set_flag("--ack", "tsd.storage.ack", "log");
    let settings = Settings::from_config(&config).unwrap();
    let (shown, sources) = (settings.server.properties, settings.server.property_sources);
    assert!(shown.keys().eq(sources.keys()));
    for (key, source) in [
        ("my.key", "opentsdb.conf line 1"),
        ("tsd.mode", "opentsdb.conf line 2"),
        ("tsd.network.port", "environment variable TSD_NETWORK_PORT"),
        ("tsd.storage.ack", "--ack"),
        ("tsd.core.enable_ui", "default"),
        ("tsd.storage.memtable.size", "default, a share of tsd.memory.limit"),
    ] {
        assert_eq!(sources.get(key).unwrap(), source, "{key}");
    }
}

#[test]
fn defaults_are_a_salted_embedded_store() {
    let settings = Settings::from_config(&Config::default()).unwrap();
    assert_eq!(settings.storage.engine, EngineKind::Embedded);
    assert_eq!(settings.storage.schema.salt_width(), 1);
    assert_eq!(settings.storage.schema.salt_buckets(), 20);
    assert_eq!(settings.server.bind, [std::net::Ipv6Addr::UNSPECIFIED]);
    assert_eq!(settings.server.port, 4242);
}

#[test]
fn engine_and_log_share_the_budget_of_all_salt_buckets() {
    let text = "tsd.storage.write.queue_size = 65536\n";
    let settings = Settings::from_config(&from_file(text)).unwrap();
    let (budget, of_store) = (settings.engine.ingest.budget, settings.storage.write_budget);
    assert_eq!(budget.max_requests(), 20 * 65_536 / 512);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let permit = runtime.block_on(budget.acquire(1, 1 << 10, true));
    assert_eq!(of_store.acquired_bytes(), 1_536);
    drop(permit);
    assert_eq!(of_store.acquired_bytes(), 0);
}

#[test]
fn a_named_file_must_exist() {
    let error = Config::load(Some(Path::new("/nowhere/opentsdb.conf"))).unwrap_err();
    assert!(matches!(error, ConfigError::Unreadable { .. }));
}
