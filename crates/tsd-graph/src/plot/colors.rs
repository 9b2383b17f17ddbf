//! Colors of series.

use crate::options::Color;

/// Colors that are distinguishable on white.
const PALETTE: [u32; 10] = [
    0x1f_77_b4, 0xd6_27_28, 0x2c_a0_2c, 0xff_7f_0e, 0x94_67_bd, 0x17_be_cf, 0x8c_56_4b, 0xe3_77_c2,
    0x7a_8b_00, 0x55_55_55,
];
/// Brightness below which a background gets lighter colors.
const DARK: f32 = 0.4;

/// The color of a series on a background. After the palette, darker and lighter variants follow
/// before colors repeat.
pub(crate) fn series_color(number: usize, background: Color) -> Color {
    let rgb = PALETTE.get(number % PALETTE.len()).copied().unwrap_or_default();
    let color = Color::rgb(rgb);
    let is_dark = background.brightness() < DARK;
    let color = if is_dark { color.mix(Color::WHITE, 0.3) } else { color };
    match number / PALETTE.len() % 3 {
        0 => color,
        1 if is_dark => color.mix(Color::WHITE, 0.4),
        1 => color.mix(Color::BLACK, 0.4),
        _ => color.mix(background, 0.45),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn thirty_series_have_colors_of_their_own() {
        for background in [Color::WHITE, Color::BLACK] {
            let colors: Vec<Color> = (0..30).map(|n| series_color(n, background)).collect();
            for (n, color) in colors.iter().enumerate() {
                assert!(!colors[..n].contains(color), "{n}");
                let contrast = (color.brightness() - background.brightness()).abs();
                assert!(contrast > 0.1, "{n} {background:?}: {contrast}");
            }
        }
    }
}
