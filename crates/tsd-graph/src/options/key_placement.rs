//! Placement of the key.

use super::option_error::PlotOptionProblem;

/// Most words of a placement.
const MAX_WORDS: usize = 16;

/// Placement of the key, and arrangement of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlacement {
    /// In the margin instead of inside the graph.
    pub is_outside: bool,
    /// Entries are in rows instead of a column.
    pub is_horizontal: bool,
    /// With a border.
    pub is_boxed: bool,
    /// Left (`Start`) to right (`End`).
    pub across: KeySide,
    /// Top (`Start`) to bottom (`End`).
    pub down: KeySide,
}

/// A side of the graph, in one of the two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySide {
    /// Left or top.
    Start,
    /// In the middle.
    Center,
    /// Right or bottom.
    End,
}

impl Default for KeyPlacement {
    /// OpenTSDB's default.
    fn default() -> Self {
        Self {
            is_outside: false,
            is_horizontal: false,
            is_boxed: true,
            across: KeySide::End,
            down: KeySide::Start,
        }
    }
}

impl KeyPlacement {
    /// Parses gnuplot's words, in any order; `None` hides the key.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, PlotOptionProblem> {
        let mut placement = Self { is_boxed: false, ..Self::default() };
        let (mut across, mut down, mut has_center) = (None, None, false);
        let mut count = 0;
        for word in text.split_whitespace() {
            count += 1;
            match word {
                "out" | "outside" => placement.is_outside = true,
                "in" | "ins" | "inside" => placement.is_outside = false,
                "left" => across = Some(KeySide::Start),
                "right" => across = Some(KeySide::End),
                "top" => down = Some(KeySide::Start),
                "bottom" => down = Some(KeySide::End),
                "center" => has_center = true,
                "below" | "above" => {
                    placement.is_outside = true;
                    placement.is_horizontal = true;
                    has_center = true;
                    down = Some(if word == "below" { KeySide::End } else { KeySide::Start });
                }
                "horiz" | "horizontal" => placement.is_horizontal = true,
                "vert" | "vertical" => placement.is_horizontal = false,
                "box" => placement.is_boxed = true,
                "nobox" => placement.is_boxed = false,
                "off" => return Ok(None),
                _ => return Err(PlotOptionProblem::Key),
            }
        }
        if count == 0 || count > MAX_WORDS {
            return Err(PlotOptionProblem::Key);
        }
        // `center` applies to the direction that no other word determines.
        let default = |side| if has_center { KeySide::Center } else { side };
        placement.across = across.unwrap_or(default(KeySide::End));
        placement.down = down.unwrap_or(default(KeySide::Start));
        Ok(Some(placement))
    }
}
