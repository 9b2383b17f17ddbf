//! Build information shown by `version`.

use std::fmt::Write;

/// Build information. Missing values are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// Release, such as `0.1.0`.
    pub version: String,
    /// First seven digits of the revision.
    pub short_revision: String,
    /// The full revision.
    pub full_revision: String,
    /// `MINT`, `MODIFIED` or `UNKNOWN`.
    pub repo_status: String,
    /// Build time, in epoch seconds.
    pub built_at_secs: i64,
    /// User who built the program.
    pub user: String,
    /// Host of the build.
    pub host: String,
    /// Directory or address of the source tree.
    pub repo: String,
    /// Branch of the source tree.
    pub branch: String,
    /// Version of the compiler.
    pub rustc: String,
}

impl BuildInfo {
    /// Renders the two lines of telnet's `version` and of `/version`.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "net.opentsdb.tools {} built at revision {} ({})\nBuilt on {} +0000 by {}@{}:{}",
            self.version,
            self.short_revision,
            self.repo_status,
            utc_text(self.built_at_secs),
            self.user,
            self.host,
            self.repo,
        );
        out
    }
}

/// `yyyy/MM/dd HH:mm:ss` in UTC.
fn utc_text(epoch_secs: i64) -> String {
    let (days, secs) = (epoch_secs.div_euclid(86_400), epoch_secs.rem_euclid(86_400));
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
    format!("{year:04}/{month:02}/{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Returns the Gregorian date `days` after 1970-01-01. Counts years from March, so that the leap day
/// is last.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_gregorian() {
        assert_eq!(utc_text(0), "1970/01/01 00:00:00");
        assert_eq!(utc_text(1_356_998_399), "2012/12/31 23:59:59");
        assert_eq!(utc_text(1_330_473_600), "2012/02/29 00:00:00");
        assert_eq!(utc_text(-1), "1969/12/31 23:59:59");
    }

    #[test]
    fn version_is_two_lines() {
        let facts = BuildInfo {
            version: "2.5.0".into(),
            short_revision: "abcdef0".into(),
            repo_status: "MINT".into(),
            built_at_secs: 1_356_998_400,
            user: "me".into(),
            host: "box".into(),
            repo: "/src".into(),
            ..BuildInfo::default()
        };
        insta::assert_snapshot!(facts.render_text(), @r"
        net.opentsdb.tools 2.5.0 built at revision abcdef0 (MINT)
        Built on 2013/01/01 00:00:00 +0000 by me@box:/src
        ");
    }
}
