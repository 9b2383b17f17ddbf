//! Detects whether a terminal shows colors, and moves its cursor for progress bars.

use std::{env, ffi::OsStr, io::IsTerminal};

/// True for a terminal that shows colors, unless `NO_COLOR` is set (<https://no-color.org>).
pub(crate) fn has_colors(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && allows_colors()
}

/// The parser's choice of colors. By default the parser sends colors to a dumb terminal if the variable `CI` is set.
pub(crate) fn color_choice() -> clap::ColorChoice {
    if allows_colors() { clap::ColorChoice::Auto } else { clap::ColorChoice::Never }
}

/// True for a terminal with a movable cursor, so that lines may be overwritten.
pub(crate) fn has_cursor(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !is_dumb()
}

fn allows_colors() -> bool {
    !is_dumb() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn is_dumb() -> bool {
    env::var_os("TERM").as_deref() == Some(OsStr::new("dumb"))
}
