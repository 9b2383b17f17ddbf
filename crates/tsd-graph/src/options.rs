//! Options of a graph, parsed from gnuplot's notations.

mod color;
mod key_placement;
mod number_format;
mod option_error;
mod plot_size;
mod range;
mod time_format;

pub(crate) use self::range::GREATEST_END;
pub use self::{
    color::Color,
    key_placement::{KeyPlacement, KeySide},
    number_format::NumberFormat,
    option_error::{PlotOptionError, PlotOptionProblem},
    plot_size::PlotSize,
    range::AxisRange,
    time_format::TimeFormat,
};

/// Most bytes of a title or an axis label.
const MAX_LABEL_BYTES: usize = 256;

/// Options of a graph.
#[derive(Clone, Debug)]
pub struct PlotOptions {
    /// Size of the picture.
    pub size: PlotSize,
    /// The left axis.
    pub y: AxisOptions,
    /// The right axis.
    pub y2: AxisOptions,
    /// Format of times below the x axis; `None` chooses it by the length of the range.
    pub time_format: Option<TimeFormat>,
    /// Placement of the key; `None` hides it.
    pub key: Option<KeyPlacement>,
    /// Text above the graph.
    pub title: Option<String>,
    /// Background of the picture; `None` is transparent.
    pub background: Option<Color>,
    /// Borders and texts.
    pub foreground: Color,
    /// How points are drawn.
    pub style: PlotStyle,
    /// Computation on the points before they are drawn.
    pub smoothing: Option<Smoothing>,
}

/// Options of a y axis.
#[derive(Clone, Debug, Default)]
pub struct AxisOptions {
    /// Ends of the axis.
    pub range: AxisRange,
    /// Label of the axis.
    pub label: Option<String>,
    /// Format of the numbers.
    pub format: NumberFormat,
    /// True for a logarithmic axis.
    pub is_log: bool,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlotStyle {
    /// A line with a marker at each point, if markers have space.
    #[default]
    LinesPoints,
    /// A line.
    Lines,
    /// A marker at each point; each series has its own shape.
    Points,
    /// A circle at each point.
    Circles,
    /// A few pixels at each point.
    Dots,
}

/// Computation on the points before they are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Smoothing {
    /// The average of the points of each second.
    Unique,
    /// Natural cubic splines.
    CSplines,
}

impl Default for PlotOptions {
    fn default() -> Self {
        Self {
            size: PlotSize::default(),
            y: AxisOptions::default(),
            y2: AxisOptions::default(),
            time_format: None,
            key: Some(KeyPlacement::default()),
            title: None,
            background: Some(Color::WHITE),
            foreground: Color::BLACK,
            style: PlotStyle::default(),
            smoothing: None,
        }
    }
}

impl PlotOptions {
    /// Names of all options, in the order in which they are applied: `nokey` follows `key`.
    pub const NAMES: [&str; 17] = [
        "wxh", "yrange", "y2range", "ylabel", "y2label", "yformat", "y2format", "xformat", "ylog",
        "y2log", "key", "title", "bgcolor", "fgcolor", "smooth", "style", "nokey",
    ];

    /// Parses the options for which `value_of` returns a value.
    pub fn parse<'v>(
        value_of: impl Fn(&'static str) -> Option<&'v str>,
    ) -> Result<Self, PlotOptionError> {
        let mut options = Self::default();
        for name in Self::NAMES {
            if let Some(value) = value_of(name) {
                let error = |problem| PlotOptionError::new(name, value, problem);
                options.set(name, value).map_err(error)?;
            }
        }
        for (name, axis) in [("yrange", &options.y), ("y2range", &options.y2)] {
            if axis.is_log && !axis.range.is_positive() {
                let value = value_of(name).unwrap_or_default();
                return Err(PlotOptionError::new(name, value, PlotOptionProblem::LogRange));
            }
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), PlotOptionProblem> {
        if value.contains('`') || value.contains("&#96;") {
            return Err(PlotOptionProblem::BackTick);
        }
        if let Some(c) = value.chars().find(|c| c.is_control()) {
            return Err(PlotOptionProblem::Character(c));
        }
        let value = value.trim();
        match name {
            // An empty size is the default, as in OpenTSDB.
            "wxh" if value.is_empty() => {}
            "wxh" => self.size = PlotSize::parse(value)?,
            "yrange" => self.y.range = AxisRange::parse(value)?,
            "y2range" => self.y2.range = AxisRange::parse(value)?,
            "ylabel" => self.y.label = label(value)?,
            "y2label" => self.y2.label = label(value)?,
            "yformat" => self.y.format = NumberFormat::parse(value)?,
            "y2format" => self.y2.format = NumberFormat::parse(value)?,
            "xformat" => self.time_format = Some(TimeFormat::parse(value)?),
            "ylog" => self.y.is_log = true,
            "y2log" => self.y2.is_log = true,
            "key" => self.key = KeyPlacement::parse(value)?,
            "title" => self.title = label(value)?,
            "bgcolor" if value == "transparent" => self.background = None,
            "bgcolor" => self.background = Some(Color::parse(value)?),
            "fgcolor" => self.foreground = Color::parse(value)?,
            "smooth" => self.smoothing = Some(Smoothing::parse(value)?),
            "style" => self.style = PlotStyle::parse(value)?,
            "nokey" => self.key = None,
            _ => {}
        }
        Ok(())
    }
}

impl PlotStyle {
    fn parse(value: &str) -> Result<Self, PlotOptionProblem> {
        Ok(match value {
            "linespoint" | "linespoints" | "lp" => Self::LinesPoints,
            "lines" => Self::Lines,
            "points" => Self::Points,
            "circles" => Self::Circles,
            "dots" => Self::Dots,
            _ => return Err(PlotOptionProblem::Style),
        })
    }
}

impl Smoothing {
    fn parse(value: &str) -> Result<Self, PlotOptionProblem> {
        match value {
            "unique" => Ok(Self::Unique),
            "csplines" => Ok(Self::CSplines),
            _ => Err(PlotOptionProblem::Smoothing),
        }
    }

    /// True if the result is a curve between the points.
    pub(crate) const fn is_curve(self) -> bool {
        matches!(self, Self::CSplines)
    }
}

/// A title or the label of an axis; `None` if it is blank.
fn label(text: &str) -> Result<Option<String>, PlotOptionProblem> {
    // Characters that quote or begin a command in gnuplot or a shell have no use in a label.
    PlotOptionProblem::check_text(text, MAX_LABEL_BYTES, " -_./%()[],:+*=#@&~^°²³")?;
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests;
