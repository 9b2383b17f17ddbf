#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;

use clap::CommandFactory;

use super::*;
use crate::config::Config;

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn help_reads_well() {
    insta::assert_snapshot!("help", Cli::command().term_width(100).render_help());
}

#[test]
fn help_of_each_command_reads_well() {
    let mut cli = Cli::command();
    cli.build();
    let is_shown =
        |command: &&clap::Command| command.get_name() != "help" && !command.is_hide_set();
    for command in cli.get_subcommands().filter(is_shown) {
        let name = format!("help-{}", command.get_name());
        // A fixed width, independent of the terminal that runs the tests.
        let mut command = command.clone().term_width(100);
        insta::assert_snapshot!(name, command.render_long_help());
    }
}

/// Sentences are not wrapped in the source: a narrower terminal would wrap them twice. Examples fit, so that no
/// terminal breaks them.
#[test]
fn texts_are_wrapped_by_the_terminal_and_examples_never() {
    let mut cli = Cli::command();
    cli.build();
    let texts = |command: &clap::Command| {
        let texts = [command.get_after_help(), command.get_long_about()];
        texts.into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>()
    };
    for text in cli.get_subcommands().chain([&cli]).flat_map(texts) {
        for line in text.lines().filter(|line| !line.is_empty()) {
            if line.starts_with(' ') {
                assert!(line.chars().count() <= 100, "{line}");
            } else {
                assert!(line.ends_with(['.', ':']), "it ends within a sentence: {line}");
            }
        }
    }
    let main = cli.get_after_help().map(ToString::to_string).unwrap();
    let example = main.lines().skip_while(|line| !line.contains("/api/put")).take(2);
    let example = example.collect::<Vec<_>>().join("\n");
    let narrow = cli.term_width(80).render_help().to_string();
    assert!(narrow.contains(&example), "{narrow}");
}

#[test]
fn a_lone_dash_is_a_path() {
    let cli = Cli::try_parse_from(["tsdb", "import", "--skip-errors", "-"]).unwrap();
    assert!(matches!(cli.command, Command::Import(args) if args.paths == [PathBuf::from("-")]));
    let cli = Cli::try_parse_from(["tsdb", "import", "--", "-"]).unwrap();
    assert!(matches!(cli.command, Command::Import(args) if args.paths == [PathBuf::from("-")]));
}

#[test]
fn options_and_words_of_a_query_may_be_mixed() {
    let cli =
        Cli::try_parse_from(["tsdb", "query", "1h-ago", "--verbose", "sum", "m", "+o=1"]).unwrap();
    assert!(matches!(cli.command, Command::Query(args) if args.words.len() == 4));
}

#[test]
fn every_flag_sets_a_key_that_exists() {
    let cli = Cli::try_parse_from([
        "tsdb",
        "tsd",
        "--port",
        "1",
        "--bind",
        "::1",
        "--backlog",
        "2",
        "--worker-threads",
        "3",
        "--max-connections",
        "4",
        "--mode",
        "ro",
        "--auto-metric",
        "--accept-damage",
        "--staticroot",
        "s",
        "--cachedir",
        "c",
        "--flush-interval",
        "5",
        "--async-io",
        "true",
        "--data",
        "d",
        "--log-level",
        "debug",
        "--log-format",
        "json",
        "--table",
        "t",
        "--uidtable",
        "u",
        "--zkquorum",
        "q",
        "--zkbasedir",
        "/z",
        "--ack",
        "log",
        "--disable-ui",
        "true",
        "--disable-api",
        "--statswport",
    ])
    .unwrap();
    let Command::Tsd(args) = cli.command else { unreachable!() };
    let warnings = args.config().unwrap().warnings();
    assert!(warnings.iter().all(|w| !w.contains("unknown")), "{warnings:?}");
}

fn config_of(arguments: &[&str]) -> Config {
    let cli = Cli::try_parse_from([&["tsdb", "tsd"], arguments].concat()).unwrap();
    let Command::Tsd(args) = cli.command else { unreachable!() };
    args.config().unwrap()
}

#[test]
fn switches_of_opentsdb_switch_off_whatever_their_value_is() {
    for value in [&["true"][..], &["false"], &[]] {
        for (flag, key, expected) in [
            ("--read-only", "tsd.mode", "ro"),
            ("--disable-ui", "tsd.core.enable_ui", "false"),
            ("--disable-api", "tsd.core.enable_api", "false"),
        ] {
            let config = config_of(&[&[flag], value, &["--statswport"]].concat());
            assert_eq!(config.text(key), Some(expected), "{flag} {value:?}");
            assert_eq!(config.text("tsd.core.stats_with_port"), Some("true"));
        }
    }
    assert!(Cli::try_parse_from(["tsdb", "tsd", "--read-only", "--mode", "rw"]).is_err());
}

#[test]
fn flags_without_effect_are_logged_with_the_reason() {
    let warnings = config_of(&["--flush-interval", "5", "--cachedir=/s", "--async-io", "false"])
        .without_effect()
        .join("\n");
    for expected in [
        "tsd.storage.flush_interval (--flush-interval) has no effect: points are sent at once",
        "tsd.http.cachedir (--cachedir) has no effect: no files of graphs are kept",
        "tsd.network.async_io (--async-io) has no effect: connections never have threads",
    ] {
        assert!(warnings.contains(expected), "{warnings}");
    }
}
