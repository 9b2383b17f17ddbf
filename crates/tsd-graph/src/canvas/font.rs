//! The font of all texts: DejaVu Sans, compiled in, in one size.
//!
//! At eleven pixels its small and capital letters are almost exactly six and eight pixels high, so texts are
//! sharp without hinting. Texts are not shaped: letters stand in the order of their characters, also in
//! scripts that run from right to left. A character that the font lacks is a box.

use std::sync::OnceLock;

use tiny_skia::{Path, PathBuilder};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// Pixels of an em.
const SIZE: f32 = 11.0;
/// Pixels from one line to the next.
pub(crate) const LINE_HEIGHT: f32 = 15.0;
/// Pixels of a capital letter.
pub(crate) const CAP_HEIGHT: f32 = 8.0;
/// Replaces the end of a text that is too long.
const ELLIPSIS: char = '…';
/// Most characters of a text; the rest is ignored.
const MAX_CHARS: usize = 300;

/// The font; `None` never happens, because it is part of the program.
fn face() -> Option<&'static Face<'static>> {
    static FACE: OnceLock<Option<Face<'static>>> = OnceLock::new();
    FACE.get_or_init(|| Face::parse(dejavu::sans::regular(), 0).ok()).as_ref()
}

fn scale(face: &Face<'_>) -> f32 {
    SIZE / f32::from(face.units_per_em())
}

fn glyph(face: &Face<'_>, c: char) -> GlyphId {
    face.glyph_index(c).unwrap_or(GlyphId(0))
}

fn advance(face: &Face<'_>, glyph: GlyphId) -> f32 {
    f32::from(face.glyph_hor_advance(glyph).unwrap_or_default()) * scale(face)
}

/// Width of a text, in pixels.
pub(crate) fn text_width(text: &str) -> f32 {
    let Some(face) = face() else { return 0.0 };
    text.chars().map(|c| advance(face, glyph(face, c))).sum()
}

/// The shown form of a text: replaces characters that are invisible or change the direction of others, and
/// cuts the text at a width.
pub(crate) fn shown_text(text: &str, most_width: f32) -> String {
    let Some(face) = face() else { return String::new() };
    let ellipsis = advance(face, glyph(face, ELLIPSIS));
    let (mut shown, mut width) = (String::new(), 0.0);
    // Length of `shown` up to which the ellipsis has space.
    let mut cut = 0;
    let mut chars = text.chars();
    for (at, c) in chars.by_ref().enumerate() {
        let c = visible(c);
        if width + ellipsis <= most_width {
            cut = shown.len();
        }
        width += advance(face, glyph(face, c));
        if width > most_width || at == MAX_CHARS {
            shown.truncate(cut);
            if ellipsis <= most_width {
                shown.push(ELLIPSIS);
            }
            break;
        }
        shown.push(c);
    }
    shown
}

/// A character, or the replacement of a character that is invisible or changes the direction of others.
pub(crate) fn visible(c: char) -> char {
    let is_format = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    if c.is_control() || is_format { char::REPLACEMENT_CHARACTER } else { c }
}

/// Outlines of a text that begins at the origin.
pub(super) fn text_path(text: &str) -> Option<Path> {
    let face = face()?;
    let mut outline = TextOutline { path: PathBuilder::new(), x: 0.0, scale: scale(face) };
    for c in text.chars() {
        let glyph = glyph(face, c);
        face.outline_glyph(glyph, &mut outline);
        outline.x += advance(face, glyph);
    }
    outline.path.finish()
}

struct TextOutline {
    path: PathBuilder,
    /// Left edge of the glyph.
    x: f32,
    scale: f32,
}

impl TextOutline {
    /// Converts units of the font, whose `y` grows upwards.
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (x.mul_add(self.scale, self.x), -y * self.scale)
    }
}

impl OutlineBuilder for TextOutline {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let (x1, y1) = self.at(x1, y1);
        let (x, y) = self.at(x, y);
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let (x1, y1) = self.at(x1, y1);
        let (x2, y2) = self.at(x2, y2);
        let (x, y) = self.at(x, y);
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn widths_add_up() {
        assert!(text_width("").abs() < 1e-6);
        assert!((text_width("ab") - text_width("a") - text_width("b")).abs() < 1e-3);
        assert!((40.0..80.0).contains(&text_width("sys.cpu.user")));
    }

    #[test]
    fn long_texts_are_cut() {
        let long = "x".repeat(1_000);
        let shown = shown_text(&long, 100.0);
        assert!(shown.ends_with('…') && text_width(&shown) <= 100.0, "{shown}");
        assert_eq!(shown_text("short", 100.0), "short");
        assert_eq!(shown_text("short", 1.0), "");
    }

    #[test]
    fn characters_that_cannot_be_seen_are_replaced() {
        assert_eq!(shown_text("a\u{202e}b\u{1}c\nd", 1_000.0), "a\u{fffd}b\u{fffd}c\u{fffd}d");
    }

    proptest! {
        #[test]
        fn any_text_is_shown_within_its_width(text: String, width in 0.0..500.0_f32) {
            let shown = shown_text(&text, width);
            prop_assert!(text_width(&shown) <= width + 0.01, "{shown}");
            let _ = text_path(&shown);
        }
    }
}
