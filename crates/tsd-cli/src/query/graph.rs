//! `tsdb query --graph`: where a graph goes, and in which form.

mod frame;
mod gnuplot_files;
mod picture;

use std::path::{Path, PathBuf};

pub(super) use self::frame::GraphFrame;
use super::series::Series;

/// Where a graph goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GraphTarget {
    /// Files for gnuplot whose names begin so.
    GnuplotFiles(PathBuf),
    /// A PNG file.
    Picture(PathBuf),
    /// Characters on standard output.
    Characters,
    /// A picture on standard output, for terminals that show sixels.
    Sixels,
}

impl GraphTarget {
    /// The target of `--graph BASE`.
    pub(crate) fn new(base: &Path, has_sixels: bool) -> anyhow::Result<Self> {
        if base.as_os_str() == "-" {
            return Ok(if has_sixels { Self::Sixels } else { Self::Characters });
        }
        anyhow::ensure!(!has_sixels, "--sixel draws on standard output: use it with --graph -");
        let is_picture = base.extension().is_some_and(|extension| extension == "png");
        Ok(if is_picture {
            Self::Picture(base.to_owned())
        } else {
            Self::GnuplotFiles(base.to_owned())
        })
    }

    /// Draws or writes the graph.
    pub(super) fn write(&self, series: &[Series], frame: GraphFrame<'_>) -> anyhow::Result<()> {
        match self {
            Self::GnuplotFiles(base) => gnuplot_files::write_files(base, series, frame.options),
            Self::Picture(path) => picture::write_png(path, series, frame),
            Self::Characters => picture::print_characters(series, frame),
            Self::Sixels => picture::print_sixels(series, frame),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_base_selects_the_form() {
        let target = |base: &str, sixel| GraphTarget::new(Path::new(base), sixel);
        assert_eq!(target("-", false).unwrap(), GraphTarget::Characters);
        assert_eq!(target("-", true).unwrap(), GraphTarget::Sixels);
        assert_eq!(target("a.png", false).unwrap(), GraphTarget::Picture("a.png".into()));
        assert_eq!(target("a", false).unwrap(), GraphTarget::GnuplotFiles("a".into()));
        assert_eq!(target("png", false).unwrap(), GraphTarget::GnuplotFiles("png".into()));
        assert!(target("a.png", true).is_err());
    }
}
