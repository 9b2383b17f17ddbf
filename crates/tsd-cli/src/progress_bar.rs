//! Progress bars on a terminal.

use std::io::stderr;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::has_cursor;

/// A bar on standard error, hidden unless that is a terminal with a movable cursor.
pub(crate) fn progress_bar(length: Option<u64>, template: &str) -> ProgressBar {
    let target = if has_cursor(&stderr()) {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(length, target);
    set_template(&bar, template);
    bar
}

/// Changes the template of a bar.
pub(crate) fn set_template(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
