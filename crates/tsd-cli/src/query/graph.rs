//! `tsdb query --graph`: writes a graph in the form that its target needs.

mod frame;
mod gnuplot_files;
mod picture;

use std::path::{Path, PathBuf};

pub(super) use self::frame::GraphFrame;
use super::series::Series;

/// The target of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GraphTarget {
    /// Files for gnuplot; their names begin with this path.
    GnuplotFiles(PathBuf),
    /// A PNG file.
    Picture(PathBuf),
    /// Characters on standard output.
    Characters,
}

impl GraphTarget {
    /// The target of `--graph BASE`.
    pub(crate) fn new(base: &Path) -> Self {
        if base.as_os_str() == "-" {
            Self::Characters
        } else if base.extension().is_some_and(|extension| extension == "png") {
            Self::Picture(base.to_owned())
        } else {
            Self::GnuplotFiles(base.to_owned())
        }
    }

    /// Draws or writes the graph.
    pub(super) fn write(&self, series: &[Series], frame: GraphFrame<'_>) -> anyhow::Result<()> {
        match self {
            Self::GnuplotFiles(base) => gnuplot_files::write_files(base, series, frame.options),
            Self::Picture(path) => picture::write_png(path, series, frame),
            Self::Characters => picture::print_characters(series, frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_selects_the_form() {
        let target = |base: &str| GraphTarget::new(Path::new(base));
        assert_eq!(target("-"), GraphTarget::Characters);
        assert_eq!(target("a.png"), GraphTarget::Picture("a.png".into()));
        assert_eq!(target("a"), GraphTarget::GnuplotFiles("a".into()));
        assert_eq!(target("png"), GraphTarget::GnuplotFiles("png".into()));
    }
}
