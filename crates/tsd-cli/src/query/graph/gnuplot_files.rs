//! Files of `tsdb query --graph BASE`: data files for gnuplot and a script that draws them.
//!
//! This module draws nothing. `BASE_0.dat` and so on contain one series each; the script `BASE.gnuplot` draws
//! `BASE.png`.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tsd_model::{Value, java_double};

use crate::query::series::Series;

/// Default size of the graph.
const SIZE: &str = "1024,768";

/// Writes the files. `options` are the arguments `+name=value`.
pub(super) fn write_files(
    base: &Path,
    series: &[Series],
    options: &[(String, String)],
) -> anyhow::Result<()> {
    let mut plots = Vec::with_capacity(series.len());
    for (at, series) in series.iter().enumerate() {
        let path = beside(base, &format!("_{at}.dat"));
        let shown = || format!("writing {}", path.display());
        let mut out = BufWriter::new(File::create(&path).with_context(shown)?);
        write_points(&mut out, series).with_context(shown)?;
        out.flush().with_context(shown)?;
        plots.push((path, title(series)));
    }
    let path = beside(base, ".gnuplot");
    std::fs::write(&path, script(base, &plots, options)?)
        .with_context(|| format!("writing {}", path.display()))
}

fn beside(base: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(base);
    name.push(suffix);
    name.into()
}

/// `SECONDS VALUE`, one line per point; NaN is skipped.
fn write_points(out: &mut impl Write, series: &Series) -> anyhow::Result<()> {
    for (time_ms, value) in &series.points {
        let seconds = time_ms / 1_000;
        match *value {
            Value::Integer(n) => writeln!(out, "{seconds} {n}")?,
            Value::Float(x) if x.is_infinite() => {
                anyhow::bail!("{} is infinite at {seconds} and cannot be drawn", series.metric)
            }
            Value::Float(x) if !x.is_nan() => {
                writeln!(out, "{seconds} {}", java_double(x))?;
            }
            Value::Float(_) => {}
        }
    }
    Ok(())
}

/// `metric{k=v, ...}`
fn title(series: &Series) -> String {
    let tags: Vec<String> = series.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
    if tags.is_empty() {
        series.metric.clone()
    } else {
        format!("{}{{{}}}", series.metric, tags.join(", "))
    }
}

fn script(
    base: &Path,
    plots: &[(PathBuf, String)],
    options: &[(String, String)],
) -> io::Result<String> {
    let option = |name: &str| {
        options.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    };
    let size = match option("wxh") {
        None => SIZE.to_owned(),
        Some(wxh) => size(wxh).ok_or_else(|| invalid(format!("+wxh={wxh} is not WIDTHxHEIGHT")))?,
    };
    let mut out = format!(
        "set term png size {size}\nset output {}\nset xdata time\nset timefmt \"%s\"\n\
         set grid\nset style data linespoints\n",
        quoted(&beside(base, ".png").to_string_lossy())
    );
    for name in ["title", "xlabel", "ylabel", "y2label"] {
        if let Some(text) = option(name) {
            let _ = writeln!(out, "set {name} {}", quoted(text));
        }
    }
    for name in ["yrange", "y2range"] {
        if let Some(range) = option(name) {
            if !is_range(range) {
                return Err(invalid(format!("+{name}={range} is not [FROM:TO]")));
            }
            let _ = writeln!(out, "set {name} {range}");
        }
    }
    if option("ylog").is_some() {
        out.push_str("set logscale y\n");
    }
    if option("nokey").is_some() {
        out.push_str("set key off\n");
    }
    for (at, (path, title)) in plots.iter().enumerate() {
        let lead = if at == 0 { "plot " } else { ", \\\n  " };
        let (path, title) = (quoted(&path.to_string_lossy()), quoted(title));
        let _ = write!(out, "{lead}{path} using 1:2 title {title}");
    }
    if plots.is_empty() {
        out.push_str("set xrange [0:1]\nset yrange [0:10]\nplot 0 title \"no points\"");
    }
    out.push('\n');
    Ok(out)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Converts `WIDTHxHEIGHT` to gnuplot's notation.
fn size(wxh: &str) -> Option<String> {
    let (width, height) = wxh.split_once('x')?;
    let (width, height): (u16, u16) = (width.parse().ok()?, height.parse().ok()?);
    (width >= 100 && height >= 100).then(|| format!("{width},{height}"))
}

/// True if a text is `[FROM:TO]` and cannot inject a command.
fn is_range(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner.is_some_and(|inner| {
        inner.matches(':').count() == 1
            && inner.chars().all(|c| c.is_ascii_digit() || ":.-+e*".contains(c))
    })
}

/// Quotes a text for gnuplot: in single quotes only the quote itself is special.
fn quoted(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("'{}'", plain.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn series(values: &[Value]) -> Series {
        let point = |(at, value): (usize, &Value)| (1_356_998_400_000 + at as i64 * 1_000, *value);
        Series {
            metric: "m".to_owned(),
            tags: vec![("host".to_owned(), "it's".to_owned())],
            aggregate_tags: Vec::new(),
            points: values.iter().enumerate().map(point).collect(),
        }
    }

    #[test]
    fn a_script_and_a_file_a_series_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("g");
        let one = || series(&[Value::Integer(1), Value::Float(f64::NAN), Value::Float(0.5)]);
        let options =
            [("title".to_owned(), "a\nb".to_owned()), ("wxh".to_owned(), "300x200".into())];
        write_files(&base, &[one(), one()], &options).unwrap();
        let read = |suffix: &str| std::fs::read_to_string(beside(&base, suffix)).unwrap();
        assert_eq!(read("_0.dat"), "1356998400 1\n1356998402 0.5\n");
        assert_eq!(read("_1.dat"), read("_0.dat"));
        let script = read(".gnuplot").replace(&directory.path().to_string_lossy().to_string(), "D");
        insta::assert_snapshot!(script);
    }

    /// Issue 37. The error did not say which file could not be written.
    #[test]
    fn an_error_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("none/g");
        for (series, name) in
            [(vec![series(&[Value::Integer(1)])], "g_0.dat"), (vec![], "g.gnuplot")]
        {
            let error = format!("{:#}", write_files(&base, &series, &[]).unwrap_err());
            assert!(error.contains(&format!("none/{name}: ")), "{error}");
        }
    }

    #[test]
    fn options_are_no_commands() {
        let refused = |name: &str, value: &str| {
            script(Path::new("g"), &[], &[(name.to_owned(), value.to_owned())]).unwrap_err();
        };
        refused("yrange", "[0:1]; system 'id'");
        refused("yrange", "0:1");
        refused("wxh", "10x10");
        let script = script(Path::new("g"), &[], &[("title".into(), "'\n!id".into())]).unwrap();
        assert!(script.contains("set title '''!id'\n"), "{script}");
    }

    #[test]
    fn infinity_cannot_be_drawn() {
        let endless = series(&[Value::Float(f64::INFINITY)]);
        assert!(write_points(&mut Vec::new(), &endless).is_err());
    }
}
