//! The statistics that OpenTSDB's importer prints at its end: the lines of `stats` without the host tag.

use std::fmt::Write as _;

use tsd_engine::{EngineHandle, Stat};

/// The statistics of the engine, one per line.
pub(super) async fn stats_lines(engine: &EngineHandle) -> String {
    let stats = engine.stats().await;
    lines(stats.names.iter().chain(&stats.points), engine.config().clock.now_ms() / 1_000)
}

fn lines<'a>(stats: impl IntoIterator<Item = &'a Stat>, now_secs: i64) -> String {
    let mut lines = String::new();
    for Stat { name, value, tags } in stats {
        let _ = write!(lines, "tsd.{name} {now_secs} {value}");
        for (tagk, tagv) in tags {
            let _ = write!(lines, " {tagk}={tagv}");
        }
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_statistic_is_a_line_with_its_tags() {
        let stat = |name, tags| Stat { name, value: 7, tags };
        let stats =
            [stat("uid.cache-hit", vec![("kind", "metrics")]), stat("compaction.count", vec![])];
        assert_eq!(
            lines(&stats, 1_600_000_000),
            "tsd.uid.cache-hit 1600000000 7 kind=metrics\ntsd.compaction.count 1600000000 7\n"
        );
    }
}
