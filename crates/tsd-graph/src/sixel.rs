//! Sixel: pictures that terminals show, as text.

use std::fmt::Write;

use tiny_skia::{Pixmap, PremultipliedColorU8};

/// Levels of each of red, green and blue in the palette.
const LEVELS: u8 = 6;
const COLORS: usize = (LEVELS as usize).pow(3);
/// Rows of pixels of a band, one bit each.
const BAND_ROWS: usize = 6;

/// Encodes a picture on a white background.
pub(crate) fn encode_sixel(pixmap: &Pixmap) -> String {
    let (width, height) = (pixmap.width() as usize, pixmap.height() as usize);
    // Square pixels; each has a color.
    let mut out = format!("\x1bP0;1;0q\"1;1;{width};{height}");
    for color in 0..COLORS {
        let [red, green, blue] = channels(color).map(|level| level * 100 / (LEVELS as usize - 1));
        let _ = write!(out, "#{color};2;{red};{green};{blue}");
    }
    let pixels = pixmap.pixels();
    let mut bits = vec![[0_u8; COLORS]; width];
    for band in pixels.chunks(width * BAND_ROWS) {
        bits.fill([0; COLORS]);
        let mut used = [false; COLORS];
        for (row, pixels) in band.chunks(width).enumerate() {
            for (pixel, bits) in pixels.iter().zip(&mut bits) {
                let color = color_of(*pixel);
                if let (Some(bits), Some(used)) = (bits.get_mut(color), used.get_mut(color)) {
                    *bits |= 1 << row;
                    *used = true;
                }
            }
        }
        for color in (0..COLORS).filter(|color| used.get(*color) == Some(&true)) {
            let _ = write!(out, "#{color}");
            let column = bits.iter().map(|bits| bits.get(color).copied().unwrap_or(0));
            push_runs(&mut out, column);
            // Back to the begin of the band.
            out.push('$');
        }
        // The next band.
        out.push('-');
    }
    out.push_str("\x1b\\\n");
    out
}

/// Appends sixels; equal ones as a run.
fn push_runs(out: &mut String, sixels: impl Iterator<Item = u8>) {
    let mut run: Option<(u8, usize)> = None;
    let mut push = |(bits, count): (u8, usize)| {
        let sixel = char::from(b'?' + (bits & 0x3f));
        if count > 3 {
            let _ = write!(out, "!{count}{sixel}");
        } else {
            out.extend(std::iter::repeat_n(sixel, count));
        }
    };
    for bits in sixels {
        match &mut run {
            Some((last, count)) if *last == bits => *count += 1,
            _ => {
                if let Some(ended) = run.replace((bits, 1)) {
                    push(ended);
                }
            }
        }
    }
    // Empty sixels at the end of a row are nothing.
    if let Some(last) = run.filter(|(bits, _)| *bits != 0) {
        push(last);
    }
}

fn color_of(pixel: PremultipliedColorU8) -> usize {
    let clear = 255 - pixel.alpha();
    let level = |channel: u8| {
        let on_white = u16::from(channel) + u16::from(clear);
        usize::from((on_white.min(255) * u16::from(LEVELS - 1) + 127) / 255)
    };
    let levels = usize::from(LEVELS);
    (level(pixel.red()) * levels + level(pixel.green())) * levels + level(pixel.blue())
}

fn channels(color: usize) -> [usize; 3] {
    let levels = usize::from(LEVELS);
    [color / (levels * levels), color / levels % levels, color % levels]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tiny_skia::Color;

    use super::*;

    #[test]
    fn a_picture_is_bands_of_six_rows() {
        let mut pixmap = Pixmap::new(10, 7).unwrap();
        pixmap.fill(Color::from_rgba8(255, 0, 0, 255));
        let text = encode_sixel(&pixmap);
        assert!(text.starts_with("\x1bP0;1;0q\"1;1;10;7#0;2;0;0;0#1;2;0;0;20"), "{text}");
        // Color 5*36 in all six rows of ten columns, then in the first row.
        assert!(text.ends_with("#180!10~$-#180!10@$-\x1b\\\n"), "{text}");
    }

    #[test]
    fn transparent_pixels_are_white() {
        let text = encode_sixel(&Pixmap::new(4, 1).unwrap());
        assert!(text.ends_with("#215!4@$-\x1b\\\n"), "{text}");
    }
}
