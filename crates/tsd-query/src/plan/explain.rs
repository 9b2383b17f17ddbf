//! A plan as text, for logs and tests.

use std::fmt;

use tsd_model::{BaseTime, to_hex};

use super::{SeriesSelection, SubQueryPlan};

impl fmt::Display for SubQueryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = (self.window.scan_end_secs - self.window.scan_start_secs)
            / i64::from(BaseTime::SPAN_SECONDS);
        writeln!(f, "metric {}", to_hex(&self.metric))?;
        writeln!(
            f,
            "rows from {} to {} ({rows} an unbroken series)",
            self.window.scan_start_secs, self.window.scan_end_secs
        )?;
        for range in &self.ranges {
            match range.bucket {
                Some(bucket) => write!(f, "scan bucket {bucket} ")?,
                None => write!(f, "scan ")?,
            }
            writeln!(f, "[{}, {})", to_hex(&range.start), to_hex(&range.stop))?;
        }
        match &self.selection {
            SeriesSelection::Tsuids(tsuids) => {
                for tags in tsuids {
                    writeln!(f, "pushed down: tags {}", to_hex(tags))?;
                }
            }
            SeriesSelection::Tags(tags) => {
                for condition in &tags.conditions {
                    write!(f, "pushed down: {} = ", condition.tagk)?;
                    match &condition.tagvs {
                        None => writeln!(f, "any")?,
                        Some(values) => {
                            let values: Vec<_> = values.iter().map(ToString::to_string).collect();
                            writeln!(f, "{}", values.join(" or "))?;
                        }
                    }
                }
                if tags.explicit {
                    writeln!(f, "pushed down: no other tag keys")?;
                }
            }
        }
        for post in &self.post_filters {
            let (kind, filter) = (post.filter.type_name(), &post.filter.filter);
            let tagk = post.tagk.map(|tagk| tagk.to_string()).unwrap_or_default();
            writeln!(f, "checked afterwards: {tagk} {kind}({filter})")?;
        }
        for tagk in &self.group_by {
            writeln!(f, "group by {tagk}")?;
        }
        Ok(())
    }
}
